"""The kinds of fine-tuning task; importing this package registers all of ours."""

from tasks.downstream import (
    choose,
    classify,
    embed,
    extract,
    multilabel,
    rank,
    regress,
    synthesize,
    tag,
    transcribe,
    translate,
)

__all__ = [
    "choose",
    "classify",
    "embed",
    "extract",
    "multilabel",
    "rank",
    "regress",
    "synthesize",
    "tag",
    "transcribe",
    "translate",
]

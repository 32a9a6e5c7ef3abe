"""The kinds of fine-tuning task; importing this package registers all of ours."""

from tasks.downstream import (
    choose,
    classify,
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
    "extract",
    "multilabel",
    "rank",
    "regress",
    "synthesize",
    "tag",
    "transcribe",
    "translate",
]

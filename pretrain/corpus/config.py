"""The recipe of a corpus: the keys of the YAML that `ernie data build` takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from ernie.config import check_least, to_dict
from ernie.data.raw import ReadOptions
from ernie.data.remote import without_secrets
from ernie.data.shard_writer import DEFAULT_SHARD_TOKENS
from ernie.errors import UserError
from ernie.text.segment.base import Segmenter
from ernie.text.sentences import lacking
from pretrain.corpus.clean.base import Filter
from pretrain.corpus.texts import TextsConfig

MOST_MB = 100_000_000  # of text to fit segmenters or a tokenizer on: more than any real input has


@dataclass(frozen=True)
class CorpusConfig:
    """The recipe of a corpus; the same recipe and text give the same bytes, whatever the machine.

    `input` lists files, folders, patterns, addresses, data sets or streams (see ernie.data.read).  `tokenizer` is
    the folder or file of a tokenizer, or the folder of a model or run that has one.  Both are relative to the working
    directory.  `language` decides how sentences are split and which segmenters are the default; "auto" decides for each
    document by its script, and "identify" also tells languages of one script apart.  `segmenters` mark words, phrases
    and entities, in order of precedence; those that need fitting are fitted on about `sample_mb` MB of the text.
    `held_out` is the fraction of documents kept for evaluation, chosen by the hash of their text: at least one
    document, unless it is 0 or all texts are equal.  Documents with less than `min_sentences` or `min_tokens` are
    dropped, with `drop_repeated` also those with the text of an earlier one.  `clean` lists filters that drop or repair
    documents, in this order.  `texts` names files for the texts that are kept and dropped.
    """

    input: list[str]
    tokenizer: Path
    language: Literal["auto", "identify", "en", "zh", "ja", "th"] = "auto"
    segmenters: list[Segmenter] | None = None
    sample_mb: float = 8.0
    held_out: float = 0.02
    min_sentences: int = 1
    min_tokens: int = 1
    drop_repeated: bool = False
    shard_tokens: int = DEFAULT_SHARD_TOKENS
    read: ReadOptions = field(default_factory=ReadOptions)
    clean: list[Filter] = field(default_factory=list)
    texts: TextsConfig = field(default_factory=TextsConfig)
    plugins: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.input:
            raise UserError("input: expected at least one file, folder, pattern or data set")
        if sentence := lacking(self.language):
            raise UserError(f"language: {sentence}")
        if self.language == "identify" and find_spec("py3langid") is None:
            raise UserError("language: identify needs the package py3langid: pip install 'ernie-continual[clean]'")
        check_least(self, min_sentences=0, min_tokens=0)
        if not 0 <= self.held_out < 1:
            raise UserError(f"held_out: expected a fraction of the documents from 0 to below 1, found {self.held_out}")
        if self.shard_tokens < 1 or not 0 < self.sample_mb <= MOST_MB:
            raise UserError(f"shard_tokens and sample_mb: expected numbers above 0, of MB at most {MOST_MB:,}")

    def settings(self) -> dict[str, Any]:
        """Return what corpus.json says of the recipe: all but where input and tokenizer are, and texts are written."""
        kept = {key: value for key, value in to_dict(self).items() if key not in ("input", "tokenizer", "texts")}
        return _without_secrets(kept)


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_secrets(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_secrets(item) for item in value]
    return without_secrets(value) if isinstance(value, str) else value

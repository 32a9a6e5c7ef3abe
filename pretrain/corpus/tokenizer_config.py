"""The keys of the YAML that `ernie tokenizer train` takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from ernie.config import check_seed
from ernie.data.raw import ReadOptions
from ernie.errors import UserError
from ernie.text.added import SPECIAL_NAMES
from pretrain.corpus.config import MOST_MB

_MOST = 100_000_000  # entries: more than any real vocabulary has


@dataclass(frozen=True)
class TokenizerConfig:
    """How a tokenizer is trained; the same text and settings give the same vocabulary.

    `input` lists files, folders, patterns, addresses, data sets or streams (see ernie.data.read).  The vocabulary of
    this `kind` has `vocab_size` entries, special ones included.  It lower-cases unless it is `cased`.  A WordPiece
    vocabulary strips accents as `strip_accents` says; "auto" means if it lower-cases, except from text where accents
    are parts of letters.  With `byte_fallback`, a SentencePiece model splits characters that it lacks into bytes.
    `user_symbols` are kept whole in any text, and are entries of their own.

    At most `sample_mb` MB of text are learned from: with `sampling: first` the first documents of every input.  With
    "reservoir" all is read and documents are drawn, each with the same probability.  So it is with "hash", where equal
    texts count as one, and the draw depends on the texts alone.  Both depend on the `seed`.
    """

    input: list[str]
    kind: Literal["wordpiece", "sentencepiece"] = "wordpiece"
    vocab_size: int = 30_000
    cased: bool = False
    strip_accents: Literal["auto", True, False] = "auto"
    byte_fallback: bool = False
    user_symbols: list[str] = field(default_factory=list)
    sample_mb: float = 100.0
    sampling: Literal["first", "reservoir", "hash"] = "first"
    seed: int = 0
    read: ReadOptions = field(default_factory=ReadOptions)

    def __post_init__(self) -> None:
        if not self.input:
            raise UserError("input: expected at least one file, folder, pattern or data set")
        for name, most in (("vocab_size", _MOST), ("sample_mb", MOST_MB)):
            if not 0 < getattr(self, name) <= most:
                raise UserError(f"{name}: expected a number above 0, at most {most:,}, found {getattr(self, name):,}")
        check_seed(self.seed)
        if self.kind != "wordpiece" and self.strip_accents != "auto":
            raise UserError("strip_accents: only a WordPiece vocabulary strips accents; leave it out")
        if self.kind != "sentencepiece" and self.byte_fallback:
            raise UserError(
                "byte_fallback: only a SentencePiece model splits characters into bytes: kind: sentencepiece"
            )
        _check_symbols(self.user_symbols)


def _check_symbols(symbols: list[str]) -> None:
    for i, symbol in enumerate(symbols):
        if not symbol or symbol.split() != [symbol]:
            raise UserError(f"user_symbols: '{symbol}' is empty or has white space, which separates tokens")
        if symbol in symbols[:i]:
            raise UserError(f"user_symbols: '{symbol}' is given twice")
        if symbol in SPECIAL_NAMES:
            raise UserError(f"user_symbols: '{symbol}' is the name of a special token, which no text stands for")

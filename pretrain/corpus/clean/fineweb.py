"""`fineweb`: the rules that FineWeb adds to those of C4 and Gopher (Penedo et al., 2024, section 3.6)."""

from __future__ import annotations

from dataclasses import dataclass

from ernie.config import check_least
from ernie.data.raw import RawDocument
from pretrain.corpus.clean.base import ENDS, Filter, Rejected, check_shares, filters
from pretrain.corpus.clean.gopher import repeated_lines
from pretrain.corpus.language import is_thai

_ENDS = (*ENDS, "'", "\u2026", "\u2019")


@filters.register("fineweb")
@dataclass(frozen=True)
class FineWeb(Filter):
    """Drops pages of lists, menus and repeated lines.

    `min_punctuated` is the share of lines that end in a mark of a sentence: documents at or below it are dropped.
    Those at or above the other two are dropped as well.  `max_repeated` is the share of characters in lines that repeat
    an earlier one, `max_short` that of lines with fewer than `short` characters.  Blank lines do not count.  In Thai,
    which has no such marks, none are asked for.
    """

    min_punctuated: float = 0.12
    max_repeated: float = 0.1
    max_short: float = 0.67
    short: int = 30

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shares(self, "min_punctuated", "max_repeated", "max_short")
        check_least(self, short=0)

    def apply(self, document: RawDocument) -> RawDocument | Rejected:
        """Return the document, or the first rule that it breaks."""
        lines = [line for line in map(str.strip, document.text.split("\n")) if line]
        if not lines:
            return document  # which the builder drops as empty
        punctuated = sum(line.endswith(_ENDS) for line in lines)
        if punctuated <= self.min_punctuated * len(lines) and not is_thai(document.text):
            return Rejected("lines without punctuation", f"{punctuated:,} of {len(lines):,} lines end in a mark")
        characters = repeated_lines(document.text)[1]
        if characters >= self.max_repeated * len(document.text):
            share = characters / len(document.text)
            return Rejected("repeated lines", f"{share:.0%} of the characters are in repeated lines")
        short = sum(len(line) < self.short for line in lines)
        if short >= self.max_short * len(lines):
            return Rejected("short lines", f"{short:,} of {len(lines):,} lines have under {self.short} characters")
        return document

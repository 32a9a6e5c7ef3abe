"""`unicode`: text that was decoded wrongly is repaired, by the package ftfy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from ernie.data.raw import RawDocument
from pretrain.corpus.clean.base import Filter, filters, require, with_lines

_CLEAN = re.compile(r"[\x20-\x25\x27-\x7e\t]*")  # ASCII without entities of HTML and control characters


@filters.register("unicode")
@dataclass(frozen=True)
class UnicodeRepair(Filter):
    """Repairs text that was decoded with the wrong encoding, such as `donâ€™t`, and composes its characters.

    Entities of HTML become characters.  Control characters are taken out.  `normalization` is a form of Unicode, or
    null for none.  Quotation marks, ligatures and wide characters stay as they are.  Source: Speer, ftfy (2019).
    """

    repairs = True
    normalization: Literal["NFC", "NFKC", None] = "NFC"

    def __post_init__(self) -> None:
        super().__post_init__()
        require("ftfy", "unicode")

    def apply(self, document: RawDocument) -> RawDocument:
        """Return the document with every line and its title repaired."""
        repaired = with_lines(document, [self._repaired(line) for line in document.text.split("\n")])
        title = self._repaired(document.title)
        return repaired if title == document.title else repaired._replace(title=title)

    def _repaired(self, line: str) -> str:
        if _CLEAN.fullmatch(line):
            return line
        fix, config = _fixer(self.normalization)
        return str(fix(line, config)).replace("\n", " ")


@lru_cache(maxsize=4)
def _fixer(normalization: str | None) -> Any:
    import ftfy

    config = ftfy.TextFixerConfig(
        normalization=normalization,
        uncurl_quotes=False,
        fix_latin_ligatures=False,
        fix_character_width=False,
        fix_line_breaks=False,
        explain=False,
    )
    return ftfy.fix_text, config

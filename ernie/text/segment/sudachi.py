"""`sudachi`: Japanese words, names and compounds, by the package SudachiPy and its dictionary SudachiDict-core."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ernie.text.segment.base import segmenters
from ernie.text.segment.tagged import Part, Tagged, Word

_LONGEST = 4_000  # characters that are analyzed at once; the library takes 49,149 bytes
_PIECE = re.compile(rf".{{1,{_LONGEST}}}(?<=[。、，！？ 　])|.{{1,{_LONGEST}}}")


@segmenters.register("sudachi")
@dataclass(frozen=True)
class Sudachi(Tagged):
    """Japanese words; with `entities` also names, with `phrases` also compounds of nouns.

    Words are the longest units of Sudachi (Takaoka et al., 2018, its mode C).
    """

    packages = ("sudachipy", "sudachidict_core")

    def words(self, text: str) -> Iterator[Word]:
        """Yield the words of a text, in order."""
        analyze = _load().tokenize
        for piece in _PIECE.finditer(text):  # no piece goes beyond the end of a line
            for found in analyze(piece.group()):
                if found.surface().strip():
                    yield Word(
                        piece.start() + found.begin(), piece.start() + found.end(), _part(found.part_of_speech())
                    )


@lru_cache(maxsize=1)
def _load() -> Any:
    import sudachipy

    dictionary = sudachipy.Dictionary(dict="core")
    make = getattr(dictionary, "tokenizer", dictionary.create)  # versions before 0.7 have the other name only
    return make(sudachipy.SplitMode.C)


def _part(tags: tuple[str, ...]) -> Part:
    if tags[0] in ("補助記号", "空白", "記号"):
        return Part.MARK
    if tags[:2] == ("名詞", "固有名詞"):
        return Part.NAME
    return Part.NOUN if tags[0] in ("名詞", "接頭辞", "接尾辞") else Part.OTHER

"""`sudachi`: Japanese words, names and compounds, by the package SudachiPy and its dictionary SudachiDict-core."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from ernie.errors import UserError
from ernie.text.segment.base import TextSegmenter, segmenters
from ernie.text.segment.tagged import Part, Word, spans_of

PACKAGES = ("sudachipy", "sudachidict_core")
_LONGEST = 4_000  # characters that are analyzed at once; the library takes 49,149 bytes
_PIECE = re.compile(rf".{{1,{_LONGEST}}}(?<=[。、，！？ 　])|.{{1,{_LONGEST}}}")


@segmenters.register("sudachi")
@dataclass(frozen=True)
class Sudachi(TextSegmenter):
    """Japanese words; with `entities` also names, with `phrases` also compounds of nouns.

    Words are the longest units of Sudachi (Takaoka et al., 2018, its mode C).
    """

    entities: bool = True
    phrases: bool = True

    def __post_init__(self) -> None:
        if not all(map(find_spec, PACKAGES)):
            raise UserError("the segmenter 'sudachi' needs packages: pip install 'ernie-continual[languages]'")

    def mark(self, text: str) -> np.ndarray:
        """Return the words, phrases and entities of a text."""
        return spans_of(_words(text), self.phrases, self.entities)


@lru_cache(maxsize=1)
def _load() -> Any:
    import sudachipy

    dictionary = sudachipy.Dictionary(dict="core")
    make = getattr(dictionary, "tokenizer", dictionary.create)  # versions before 0.7 have the other name only
    return make(sudachipy.SplitMode.C)


def _words(text: str) -> Iterator[Word]:
    analyze = _load().tokenize
    for piece in _PIECE.finditer(text):  # no piece goes beyond the end of a line
        for found in analyze(piece.group()):
            if found.surface().strip():
                yield Word(piece.start() + found.begin(), piece.start() + found.end(), _part(found.part_of_speech()))


def _part(tags: tuple[str, ...]) -> Part:
    if tags[0] in ("補助記号", "空白", "記号"):
        return Part.MARK
    if tags[:2] == ("名詞", "固有名詞"):
        return Part.NAME
    return Part.NOUN if tags[0] in ("名詞", "接頭辞", "接尾辞") else Part.OTHER

"""Tokenizing by table: each distinct unit of the text is tokenized once, the rest is indexing.

Legend: u distinct units in the table, p their pieces, m units of a text, n its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from ernie.data.document import Flag
from ernie.data.shards import dtypes
from ernie.text.scripts import HAN_CHARACTER
from ernie.text.segment.base import Words
from ernie.text.tokenizer import Tokenizer

MAX_UNITS = 400_000  # about 100 MB; a table that has grown larger is cleared


class Tokenized(NamedTuple):
    """The tokens of consecutive units: ids (n,), flags (n,), and each unit's first token, starts (m + 1,).

    `words` (m) are the units as written in the text.
    """

    ids: np.ndarray
    flags: np.ndarray
    starts: np.ndarray
    words: Words


class UnitTable:
    """A cache of the token ids of every unit seen so far."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._id_type = dtypes(tokenizer.vocab_size)["ids"]
        self._clear()

    def __len__(self) -> int:
        """The number of units in the table."""
        return len(self._units)

    def tokenize(self, units: Sequence[str], words: Sequence[str]) -> Tokenized:
        """Return the tokens of consecutive `units`; `words` are the units as written in the text."""
        if len(self._units) > MAX_UNITS:
            self._clear()
        numbers = self._units.of(units)
        self._add_new_units()
        in_text = self._words(numbers) if units == words else Words.of(words)
        counts = self._counts[numbers]
        starts = np.concatenate(([0], np.cumsum(counts)))
        # A token's index in the table: that of its unit's first piece, plus its offset in the unit.
        indices = np.repeat(self._firsts[numbers] - starts[:-1], counts) + np.arange(starts[-1])
        flags = np.repeat(in_text.map(_case_flags).astype(np.uint8), counts) | self._continues[indices]
        return Tokenized(self._pieces[indices], flags, starts, in_text)

    def _words(self, numbers: np.ndarray) -> Words:
        """Return the units with these numbers as words, renumbered to those of the table that occur here."""
        used = np.flatnonzero(np.bincount(numbers, minlength=len(self._units)))
        renumbered = np.zeros(len(self._units), np.int64)
        renumbered[used] = np.arange(len(used))
        return Words([self._names[i] for i in used.tolist()], renumbered[numbers])

    def _clear(self) -> None:
        self._units = _Numbers()
        self._names: list[str] = []  # (u) the units themselves
        self._firsts = np.empty(0, np.int64)  # (u,) the index of a unit's first piece
        self._counts = np.empty(0, np.int64)  # (u,) number of pieces of a unit
        self._pieces = np.empty(0, self._id_type)  # (p,)
        self._continues = np.empty(0, np.uint8)  # (p,) CONTINUES_WORD or nothing

    def _add_new_units(self) -> None:
        """Tokenize the units that were seen for the first time."""
        new = self._units.take_new()
        pieces = [self._tokenizer.pieces(unit) for unit in new]
        counts = np.fromiter(map(len, pieces), np.int64, len(new))
        firsts = len(self._pieces) + np.cumsum(counts) - counts
        self._firsts = np.concatenate((self._firsts, firsts))
        self._counts = np.concatenate((self._counts, counts))
        self._names += new
        self._pieces = np.concatenate((self._pieces, np.fromiter(chain.from_iterable(pieces), self._id_type)))
        continues = [flag for unit, count in zip(new, counts, strict=True) for flag in _continuing(unit, count)]
        self._continues = np.concatenate((self._continues, np.array(continues, np.uint8)))


class _Numbers(dict[str, int]):
    """Numbers strings in the order they are first seen."""

    def __init__(self) -> None:
        self._new: list[str] = []

    def of(self, strings: Sequence[str]) -> np.ndarray:
        return np.fromiter(map(self.__getitem__, strings), np.int64, len(strings))

    def take_new(self) -> list[str]:
        """Return the strings first seen since the last call."""
        new, self._new = self._new, []
        return new

    def __missing__(self, string: str) -> int:
        self._new.append(string)
        number = self[string] = len(self)
        return number


def _continuing(unit: str, count: int) -> list[int]:
    """Return the flag CONTINUES_WORD for all pieces of a unit but its first.

    The unit of a subword model may be a whole clause of Chinese, which has no spaces: there, each piece is a word.
    """
    return [0] * count if HAN_CHARACTER.search(unit) else [0, *[int(Flag.CONTINUES_WORD)] * (count - 1)][:count]


@lru_cache(maxsize=MAX_UNITS)
def _case_flags(word: str) -> int:
    """Return the flags CASED and CAPITALIZED of a word."""
    cased = word.lower() != word.upper()
    capitalized = cased and word[0] != word[0].lower()
    return Flag.CASED * cased | Flag.CAPITALIZED * capitalized

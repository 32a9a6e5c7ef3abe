"""Tokenizing by table: each distinct unit of the text is tokenized once, the rest is indexing.

Legend: u distinct units in the table, m units of a text, n its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from ernie.data.document import Flag
from ernie.data.shards import dtypes
from ernie.text.tokenizer import Tokenizer

MAX_UNITS = 400_000  # about 100 MB; a table that has grown beyond starts anew


class Tokenized(NamedTuple):
    """The tokens of a run of units: ids (n,), flags (n,), and where each unit's tokens begin, starts (m + 1,)."""

    ids: np.ndarray
    flags: np.ndarray
    starts: np.ndarray


class UnitTable:
    """What is known of every unit met so far: its token ids, and the flags that its letters decide."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._id_type = dtypes(tokenizer.vocab_size)["ids"]
        self._clear()

    def tokenize(self, units: Sequence[str]) -> Tokenized:
        """The tokens of `units`, one after the other."""
        if len(self._numbers) > MAX_UNITS:
            self._clear()
        numbers = np.fromiter(map(self._numbers.__getitem__, units), np.int64, len(units))
        self._learn()
        counts = self._counts[numbers]
        starts = np.concatenate(([0], np.cumsum(counts)))
        # A token's place in the table: that of its unit's first piece, and one more for every token since.
        where = np.repeat(self._firsts[numbers] - starts[:-1], counts) + np.arange(starts[-1])
        flags = np.repeat(self._flags[numbers], counts)
        continues = np.ones(len(flags), dtype=bool)
        continues[starts[:-1][counts > 0]] = False
        flags[continues] |= int(Flag.CONTINUES_WORD)
        return Tokenized(self._pieces[where], flags, starts)

    def _clear(self) -> None:
        self._numbers = _Numbers()
        self._pieces = np.empty(0, self._id_type)
        self._firsts = np.empty(0, np.int64)  # (u,)
        self._counts = np.empty(0, np.int64)  # (u,)
        self._flags = np.empty(0, np.uint8)  # (u,)

    def _learn(self) -> None:
        """Tokenize the units that were numbered since the last time."""
        new = self._numbers.new
        if not new:
            return
        pieces = [self._tokenizer.pieces(unit) for unit in new]
        counts = np.fromiter(map(len, pieces), np.int64, len(new))
        self._firsts = np.concatenate((self._firsts, len(self._pieces) + np.cumsum(counts) - counts))
        self._counts = np.concatenate((self._counts, counts))
        self._pieces = np.concatenate((self._pieces, np.fromiter(chain.from_iterable(pieces), self._id_type)))
        flags = [_letters(surface) for surface in self._tokenizer.surface(new)]
        self._flags = np.concatenate((self._flags, np.array(flags, dtype=np.uint8)))
        new.clear()


class _Numbers(dict[str, int]):
    """Numbers for units in the order they are met; `new` are those not yet tokenized."""

    def __init__(self) -> None:
        self.new: list[str] = []

    def __missing__(self, unit: str) -> int:
        self.new.append(unit)
        number = self[unit] = len(self)
        return number


def _letters(surface: str) -> int:
    """The flags CASED and CAPITALIZED of a word."""
    cased = surface.lower() != surface.upper()
    capitalized = cased and surface[0] != surface[0].lower()
    return Flag.CASED * cased | Flag.CAPITALIZED * capitalized

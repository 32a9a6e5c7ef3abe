"""Words of a script without spaces, learnt from nothing but text: Chinese words of up to four characters.

A string is a word if what may follow it becomes less certain at its end, and what may stand before it at its start:
the variation of branching entropy (Magistry and Sagot, 2012, "Unsupervized Word Segmentation: the Case for Mandarin
Chinese").  A text is cut so that the sum of its words' autonomy, times their lengths, is largest.

Legend: m symbols (characters) of a text, g n-grams of a table, k words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ernie.text.segment.ngrams import BREAK, LONGEST, Table, Text, entropies
from ernie.text.segment.viterbi import best_cut

_SINGLE = 0.5  # weight of a character that stands alone; from 0.3 to 0.7 People's Daily's F1 changes by 0.01
_LEAST = 2
_SYMBOLS_PER_LEAST = 2_000_000  # so many symbols of text raise the least count by one: tables stay small


@dataclass(frozen=True)
class Lexicon:
    """N-grams of 1 to LONGEST symbols, each with its worth as a word."""

    tables: tuple[Table, ...]
    worth: tuple[np.ndarray, ...]

    @classmethod
    def learn(cls, text: Text) -> Lexicon:
        """From the counts of all n-grams of a text; those that the text is nowhere cut into are left out."""
        least = _LEAST + len(text) // _SYMBOLS_PER_LEAST
        tables = tuple(Table.count(text, n, 1 if n == 1 else least) for n in range(1, LONGEST + 1))
        edges = [entropies(text, table) for table in tables]
        worth = []
        for i, table in enumerate(tables):
            shorter = tables[i - 1] if i else None
            autonomy = _variation(table, 0, shorter, edges) + _variation(table, 1, shorter, edges)
            worth.append(autonomy * (_SINGLE if i == 0 else table.n))
        whole = cls(tables, tuple(worth))
        _, numbers = whole.cut(text)
        used = np.bincount(numbers[numbers >= 0], minlength=whole.size) > 0
        parts = np.split(used, whole._offsets[1:-1])
        pairs = list(zip(tables, worth, parts, strict=True))
        return cls(tuple(table.keep(part) for table, _, part in pairs), tuple(each[part] for _, each, part in pairs))

    def cut(self, text: Text) -> tuple[np.ndarray, np.ndarray]:
        """Where the words begin (k,), and a number (k,) for each: equal for equal words, -1 for what is no entry."""
        entries = self._entries(text)
        lengths = best_cut(text.symbols != BREAK, text.starts, self._worth_at(entries))
        firsts = np.flatnonzero(lengths)
        numbers = entries[lengths[firsts] - 1, firsts]
        return firsts, np.where(numbers >= 0, numbers + self._offsets[lengths[firsts] - 1], -1)

    def number(self, word: str, symbols: Mapping[str, int]) -> int:
        """The number that `cut` gives a word, or -1 when it is not in the lexicon."""
        if not all(letter in symbols for letter in word):
            return -1
        text = Text(np.array([symbols[letter] for letter in word]), np.array([0]))
        place = self._entries(text)[len(word) - 1, 0]
        return int(place + self._offsets[len(word) - 1]) if place >= 0 else -1

    @property
    def size(self) -> int:
        return int(self._offsets[-1])

    @property
    def _offsets(self) -> np.ndarray:
        return np.cumsum([0, *(len(table.keys) for table in self.tables)])

    def _entries(self, text: Text) -> np.ndarray:
        """The place in its table of the n-gram that begins at each symbol, (LONGEST, m); -1 where there is none."""
        entries = np.full((LONGEST, len(text)), -1, dtype=np.int64)
        for i, table in enumerate(self.tables):
            places = text.at(table.n)
            entries[i, places] = table.find(text.keys(places, table.n))
        return entries

    def _worth_at(self, entries: np.ndarray) -> np.ndarray:
        """What a word of each length beginning at each symbol is worth, (LONGEST, m); -inf where there is none.

        A single symbol is always possible.
        """
        worth = np.full(entries.shape, -np.inf)
        for i, values in enumerate(self.worth):
            known = entries[i] >= 0
            worth[i, known] = values[entries[i, known]]
        worth[0, ~np.isfinite(worth[0])] = 0.0
        return worth


def _variation(
    table: Table, side: int, shorter: Table | None, edges: list[tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """How much more uncertain the neighbour on a side is than one symbol earlier, less the mean over the table (g,)."""
    entropy = edges[table.n - 1][side]
    if shorter is not None:
        inner = table.part(0, table.n - 1) if side == 1 else table.part(1, table.n)
        entropy = entropy - edges[shorter.n - 1][side][shorter.find(inner)]
    return entropy - entropy.mean() if len(entropy) else entropy

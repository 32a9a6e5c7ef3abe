"""Words of a script without spaces, learnt from nothing but text: Chinese words of up to four characters.

A string is a word if what may follow it becomes less certain at its end, and what may stand before it at its start:
the variation of branching entropy (Magistry and Sagot, 2012, "Unsupervized Word Segmentation: the Case for Mandarin
Chinese").  A text is cut so that the sum of its words' autonomy, times their lengths, is largest.

Legend: m symbols (characters) of a text, r runs of them between punctuation, k words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ernie.text.segment.base import covered
from ernie.text.segment.ngrams import LONGEST, Table, Text, entropies

_SINGLE = 0.5  # weight of a character that stands alone; 0.3 to 0.7 do equally well on People's Daily within 1 % of F1
_LONGEST_RUN = 256  # symbols; longer runs are cut, since the search takes a step a symbol
_LEAST = 2
_SYMBOLS_PER_LEAST = 2_000_000  # so many symbols of text raise the least count by one: tables stay small


@dataclass(frozen=True)
class Lexicon:
    """N-grams of 1 to LONGEST symbols with their worth as a word."""

    tables: tuple[Table, ...]
    worth: tuple[np.ndarray, ...]

    @classmethod
    def learn(cls, text: Text) -> Lexicon:
        """From the counts of all n-grams of a text."""
        least = _LEAST + len(text) // _SYMBOLS_PER_LEAST
        tables = tuple(Table.count(text, n, 1 if n == 1 else least) for n in range(1, LONGEST + 1))
        edges = [entropies(text, table) for table in tables]
        worth = []
        for i, table in enumerate(tables):
            shorter = tables[i - 1] if i else None
            autonomy = _variation(table, 0, shorter, edges) + _variation(table, 1, shorter, edges)
            worth.append(autonomy * (_SINGLE if i == 0 else table.n))
        return cls(tables, tuple(worth))

    def cut(self, text: Text) -> tuple[np.ndarray, np.ndarray]:
        """Where the words begin (k,), and a number (k,) for each: equal for equal words, -1 for what is a BREAK."""
        entries = self._entries(text)
        lengths = _best_cut(text, self._worth_at(entries))
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
        places = text.at(1)
        for i, table in enumerate(self.tables):
            places = places[text.reach[places] > i]
            found = table.find(text.keys(places, table.n))
            entries[i, places] = found
            places = places[found >= 0]  # an n-gram is counted only where the one before its last symbol is
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


def _best_cut(text: Text, worth: np.ndarray) -> np.ndarray:
    """The length of the word that begins at each symbol (m,), 0 inside words, so that the sum of worth is largest.

    Viterbi's algorithm on all runs at once, a step a symbol.
    """
    firsts, sizes = _runs(text)
    base = firsts + np.argsort(np.argsort(firsts))  # a run of n symbols has n + 1 nodes, in the order of the text
    value = np.full(len(text) + len(firsts) + 1, -np.inf)
    step_in = np.zeros(len(value), dtype=np.int64)
    value[base] = 0.0
    for step in range(int(sizes[0]) if len(sizes) else 0):
        active = int(np.searchsorted(-sizes, -step, side="left"))  # runs longer than `step`; they come first
        nodes, places = base[:active] + step, firsts[:active] + step
        for n in range(1, LONGEST + 1):
            inside = sizes[:active] >= step + n
            gain = value[nodes[inside]] + worth[n - 1, places[inside]]
            ends = nodes[inside] + n
            better = gain > value[ends]
            value[ends[better]] = gain[better]
            step_in[ends[better]] = n
    return _trace(len(text), firsts, sizes, base, step_in)


def _trace(m: int, firsts: np.ndarray, sizes: np.ndarray, base: np.ndarray, step_in: np.ndarray) -> np.ndarray:
    """The lengths of the words along the best path, from the runs' ends back."""
    lengths = np.where(covered(firsts, firsts + sizes, m), 0, 1)
    left = sizes
    while len(left):
        n = step_in[base + left]
        left = left - n
        lengths[firsts + left] = n
        going = left > 0
        firsts, base, left = firsts[going], base[going], left[going]
    return lengths


def _runs(text: Text) -> tuple[np.ndarray, np.ndarray]:
    """Where the runs of symbols without a BREAK between them begin (r,), and their sizes (r,), the longest first."""
    inside = text.reach > 0
    joined = np.concatenate(([False], text.reach[:-1] > 1)) if len(text) else inside
    firsts = np.flatnonzero(inside & ~joined)
    lasts = np.flatnonzero(inside & (text.reach == 1))
    sizes = lasts - firsts + 1
    pieces = -(-sizes // _LONGEST_RUN)
    nth = np.arange(pieces.sum()) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    firsts = np.repeat(firsts, pieces) + nth * _LONGEST_RUN
    sizes = np.minimum(np.repeat(sizes, pieces) - nth * _LONGEST_RUN, _LONGEST_RUN)
    order = np.argsort(-sizes, kind="stable")
    return firsts[order], sizes[order]

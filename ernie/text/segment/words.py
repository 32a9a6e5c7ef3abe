"""Unsupervised word segmentation for scripts without spaces: Chinese words of up to four characters, learned from text.

A string is a word if the next character becomes less predictable at its end, and the previous one at its start: the
variation of branching entropy (Magistry and Sagot, 2012, "Unsupervized Word Segmentation: the Case for Mandarin
Chinese").  A text is segmented so that the sum of its words' autonomy times their lengths is maximal.

Legend: m symbols (characters) of a text, g n-grams of a table, k words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ernie.text.segment.ngrams import BREAK, LONGEST, Table, Text, entropies
from ernie.text.segment.viterbi import best_cut

_SINGLE = 0.5  # weight of a one-character word; F1 on the People's Daily varies by 0.01 from 0.3 to 0.7
_MIN_COUNT = 2
_SYMBOLS_PER_COUNT = 2_000_000  # the minimum count grows by one per so many symbols of text, to keep tables small


@dataclass(frozen=True)
class Lexicon:
    """N-grams of 1 to LONGEST symbols, each with its score as a word."""

    tables: tuple[Table, ...]
    scores: tuple[np.ndarray, ...]

    @classmethod
    def learn(cls, text: Text) -> Lexicon:
        """Learn a lexicon from the n-gram counts of a text, without n-grams that its own segmentation never uses."""
        least = _MIN_COUNT + len(text) // _SYMBOLS_PER_COUNT
        tables = tuple(Table.count(text, n, 1 if n == 1 else least) for n in range(1, LONGEST + 1))
        entropy_pairs = [entropies(text, table) for table in tables]
        scores = []
        for i, table in enumerate(tables):
            shorter = tables[i - 1] if i else None
            autonomy = _variation(table, 0, shorter, entropy_pairs) + _variation(table, 1, shorter, entropy_pairs)
            scores.append(autonomy * (_SINGLE if i == 0 else table.n))
        full = cls(tables, tuple(scores))
        _, numbers = full.cut(text)
        used = np.split(np.bincount(numbers[numbers >= 0], minlength=full.size) > 0, full._offsets[1:-1])
        return cls(
            tuple(table.keep(mask) for table, mask in zip(tables, used, strict=True)),
            tuple(values[mask] for values, mask in zip(scores, used, strict=True)),
        )

    def cut(self, text: Text) -> tuple[np.ndarray, np.ndarray]:
        """Segment a text: return the start (k,) and number (k,) of each word; -1 for words not in the lexicon."""
        entries = self._entries(text)
        lengths = best_cut(text.symbols != BREAK, text.starts, self._scores_at(entries))
        firsts = np.flatnonzero(lengths)
        numbers = entries[lengths[firsts] - 1, firsts]
        return firsts, np.where(numbers >= 0, numbers + self._offsets[lengths[firsts] - 1], -1)

    def number(self, word: str, symbols: Mapping[str, int]) -> int:
        """Return the number that `cut` gives a word, or -1 when it is not in the lexicon."""
        if not all(letter in symbols for letter in word):
            return -1
        text = Text(np.array([symbols[letter] for letter in word]), np.array([0]))
        index = self._entries(text)[len(word) - 1, 0]
        return int(index + self._offsets[len(word) - 1]) if index >= 0 else -1

    @property
    def size(self) -> int:
        return int(self._offsets[-1])

    @property
    def _offsets(self) -> np.ndarray:
        return np.cumsum([0, *(len(table.keys) for table in self.tables)])

    def _entries(self, text: Text) -> np.ndarray:
        """Return the table index of the n-gram of each length that begins at each symbol, (LONGEST, m), or -1."""
        entries = np.full((LONGEST, len(text)), -1, dtype=np.int64)
        for i, table in enumerate(self.tables):
            positions = text.at(table.n)
            entries[i, positions] = table.find(text.keys(positions, table.n))
        return entries

    def _scores_at(self, entries: np.ndarray) -> np.ndarray:
        """Return the score of a word of each length at each symbol, (LONGEST, m); -inf where there is no word.

        A single symbol is always allowed.
        """
        scores = np.full(entries.shape, -np.inf)
        for i, values in enumerate(self.scores):
            in_lexicon = entries[i] >= 0
            scores[i, in_lexicon] = values[entries[i, in_lexicon]]
        scores[0, ~np.isfinite(scores[0])] = 0.0
        return scores


def _variation(
    table: Table, side: int, shorter: Table | None, entropy_pairs: list[tuple[np.ndarray, np.ndarray]]
) -> np.ndarray:
    """Return the increase in branching entropy on a side over the last symbol, minus the table's mean, (g,)."""
    entropy = entropy_pairs[table.n - 1][side]
    if shorter is not None:
        inner = table.part(0, table.n - 1) if side == 1 else table.part(1, table.n)
        entropy = entropy - entropy_pairs[shorter.n - 1][side][shorter.find(inner)]
    return entropy - entropy.mean() if len(entropy) else entropy

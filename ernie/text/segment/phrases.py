"""Phrases learned from counts: n-grams whose parts are strongly associated and whose neighbors vary.

Cohesion is the normalized pointwise mutual information of the weakest split of the n-gram in two (Bouma, 2009); freedom
is the smaller of the branching entropies on its two sides.

Legend: m symbols of a text, g n-grams of a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ernie.text.segment.base import disjoint
from ernie.text.segment.ngrams import Table, Text, entropies


@dataclass(frozen=True)
class Criteria:
    """The conditions for an n-gram of 2 to `longest` symbols to be a phrase.

    It occurs at least `least` times, and its normalized mutual information (at most 1) is at least `cohesion`.  The
    entropy of its neighbors on either side is at least `freedom` nats.  It neither begins nor ends with a symbol of
    `stop`.
    """

    longest: int
    least: int
    cohesion: float
    freedom: float
    stop: frozenset[int]


class Phrases:
    """A set of n-grams, matched from left to right, taking the longest match at each position."""

    def __init__(self, tables: Sequence[Table]):
        """Take one table per length, the shortest first."""
        self._tables = tables

    @classmethod
    def of(cls, grams: Iterable[Sequence[int]], longest: int) -> Phrases:
        """Build the set from a list of n-grams of 2 to `longest` symbols."""
        grams = list(grams)
        tables = []
        for n in range(2, longest + 1):
            rows = np.array([gram for gram in grams if len(gram) == n], np.int64).reshape(-1, n)
            text = Text(rows.ravel(), np.arange(0, rows.size, n))
            tables.append(Table.count(text, n, 1))
        return cls(tables)

    @classmethod
    def learn(cls, text: Text, criteria: Criteria) -> Phrases:
        """Return the n-grams of a text that meet the criteria."""
        tables = [Table.count(text, n, 1 if n == 1 else criteria.least) for n in range(1, criteria.longest + 1)]
        stop = np.fromiter(criteria.stop, np.uint64)
        phrases = []
        for table in tables[1:]:
            mask = ~np.isin(table.part(0, 1), stop) & ~np.isin(table.part(table.n - 1, table.n), stop)
            mask &= _cohesion(table, tables) >= criteria.cohesion
            cohesive = table.keep(mask)
            phrases.append(cohesive.keep(np.minimum(*entropies(text, cohesive)) >= criteria.freedom))
        return cls(phrases)

    def find(self, text: Text) -> tuple[np.ndarray, np.ndarray]:
        """Return the starts and ends of the phrases in a text."""
        places = text.at(2)
        lengths = np.zeros(len(places), dtype=np.int64)
        for table in self._tables:
            fits = np.flatnonzero(text.reach[places] >= table.n)
            lengths[fits[table.find(text.keys(places[fits], table.n)) >= 0]] = table.n
        firsts = places[lengths > 0]
        stops = firsts + lengths[lengths > 0]
        keep = disjoint(firsts, stops)
        return firsts[keep], stops[keep]


def _cohesion(table: Table, tables: list[Table]) -> np.ndarray:
    """Return the normalized mutual information (g,) of the weakest split of each n-gram."""
    total = np.log(max(1, tables[0].counts.sum()))
    joint = np.log(table.counts) - total
    weakest = np.full(len(table.keys), np.inf)
    for at in range(1, table.n):
        left, right = tables[at - 1], tables[table.n - at - 1]
        independent = (
            np.log(left.counts[left.find(table.part(0, at))])
            + np.log(right.counts[right.find(table.part(at, table.n))])
            - 2 * total
        )
        weakest = np.minimum(weakest, (joint - independent) / -joint)
    return weakest

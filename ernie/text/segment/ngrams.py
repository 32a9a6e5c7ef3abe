"""Runs of symbols, counted and found by sorting: no loop over the text.

Legend: m symbols of a text, g distinct n-grams.  A symbol is a number below 2**16, so that four fit into one key; the
symbol BREAK stands for whatever no n-gram may contain.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

BREAK = 0
LONGEST = 4  # symbols in a key
MOST_SYMBOLS = (1 << 16) - 1
_BITS = np.uint64(16)
_SIEVE_BITS = 20


class Text:
    """Symbols (m,) of a text, cut into sentences at `starts`: its n-grams as numbers."""

    def __init__(self, symbols: np.ndarray, starts: np.ndarray):
        self.symbols = symbols.astype(np.uint64)
        self.starts = starts
        begins = np.zeros(len(symbols) + LONGEST, dtype=bool)
        begins[starts] = True
        begins[len(symbols) :] = True
        ok = np.append(symbols != BREAK, np.zeros(LONGEST - 1, dtype=bool))
        reach = ok[: len(symbols)].astype(np.int8)
        alive = reach > 0
        for step in range(1, LONGEST):
            alive = alive & ok[step : len(symbols) + step] & ~begins[step : len(symbols) + step]
            reach += alive
        self.reach = reach  # (m,) the length of the longest n-gram that begins here
        self._begins = begins

    def __len__(self) -> int:
        return len(self.symbols)

    def at(self, n: int) -> np.ndarray:
        """Where n-grams begin."""
        return np.flatnonzero(self.reach >= n)

    def keys(self, places: np.ndarray, n: int) -> np.ndarray:
        """The keys of the n-grams that begin at `places`, unequal for unequal n-grams of one length."""
        key = self.symbols[places]
        for step in range(1, n):
            key = (key << _BITS) | self.symbols[places + step]
        return key

    def before(self, places: np.ndarray) -> np.ndarray:
        """The symbol before each place, BREAK at a sentence's start."""
        return np.where(self._begins[places], BREAK, self.symbols[places - 1])

    def after(self, places: np.ndarray, n: int) -> np.ndarray:
        """The symbol after the n-gram at each place, BREAK at a sentence's end."""
        ends = places + n
        inside = np.minimum(ends, len(self.symbols) - 1)
        return np.where(self._begins[ends], BREAK, self.symbols[inside])


@dataclass(frozen=True)
class Table:
    """The n-grams of one length that a text holds often enough: sorted keys (g,) and counts (g,)."""

    n: int
    keys: np.ndarray
    counts: np.ndarray

    @classmethod
    def count(cls, text: Text, n: int, least: int) -> Table:
        keys, counts = _count(text.keys(text.at(n), n), n)
        often = counts >= least
        return cls(n, keys[often], counts[often])

    def find(self, keys: np.ndarray) -> np.ndarray:
        """The place of each key in the table, or -1."""
        if self.n == 1:
            return self._place_of[keys]
        found = np.full(len(keys), -1, dtype=np.int64)
        likely = np.flatnonzero(self._sieve[_hash(keys)])
        places = np.minimum(np.searchsorted(self.keys, keys[likely]), len(self.keys) - 1)
        hits = self.keys[places] == keys[likely]
        found[likely[hits]] = places[hits]
        return found

    def keep(self, good: np.ndarray) -> Table:
        """The table without the n-grams for which `good` (g,) is false."""
        return Table(self.n, self.keys[good], self.counts[good])

    @cached_property
    def _place_of(self) -> np.ndarray:
        """The place of every symbol in a table of single ones, or -1."""
        places = np.full(MOST_SYMBOLS + 1, -1, dtype=np.int64)
        places[self.keys] = np.arange(len(self.keys))
        return places

    @cached_property
    def _sieve(self) -> np.ndarray:
        """Most n-grams of a text are in no table; a look into this sieve says so before any search."""
        sieve = np.zeros(1 << _SIEVE_BITS, dtype=bool)
        sieve[_hash(self.keys)] = True
        return sieve

    def __reduce__(self) -> tuple[Any, ...]:
        return Table, (self.n, self.keys, self.counts)  # the sieve is quickly made again

    def part(self, start: int, stop: int) -> np.ndarray:
        """The keys (g,) of the symbols [start, stop) of each n-gram."""
        shifted = self.keys >> np.uint64(16 * (self.n - stop))
        return shifted & np.uint64((1 << 16 * (stop - start)) - 1)


def _count(keys: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The distinct keys of n-grams, sorted, and how often each stands there."""
    if n > 1:
        return np.unique(keys, return_counts=True)
    counts = np.bincount(keys.astype(np.int64))  # single symbols need no sorting
    found = np.flatnonzero(counts)
    return found.astype(np.uint64), counts[found]


def _hash(keys: np.ndarray) -> np.ndarray:
    """Keys spread over 2**_SIEVE_BITS places (Fibonacci hashing)."""
    return (keys * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - _SIEVE_BITS)


def entropies(text: Text, table: Table) -> tuple[np.ndarray, np.ndarray]:
    """How uncertain the symbol before and the symbol after each n-gram of a table is, two arrays (g,) in nats.

    Every sentence's edge counts as a neighbour of its own: what often stands at an edge is free on that side.
    """
    places = text.at(table.n)
    found = table.find(text.keys(places, table.n))
    places, found = places[found >= 0], found[found >= 0]
    size = len(table.keys)
    return _entropy(found, text.before(places), size), _entropy(found, text.after(places, table.n), size)


def _entropy(groups: np.ndarray, neighbours: np.ndarray, size: int) -> np.ndarray:
    """The entropy of the neighbours in each of `size` groups."""
    pairs, counts = np.unique((groups.astype(np.uint64) << _BITS) | neighbours.astype(np.uint64), return_counts=True)
    home, edge = (pairs >> _BITS).astype(np.int64), (pairs & np.uint64(MOST_SYMBOLS)) == BREAK
    totals = np.bincount(home, counts, size)
    # n outcomes of count c make -c/t log c/t; an edge seen c times is c outcomes of count 1.
    logs = counts * np.where(edge, 0.0, np.log(counts))
    sums = np.bincount(home, logs, size)
    return np.where(totals > 0, np.log(np.maximum(totals, 1)) - sums / np.maximum(totals, 1), 0.0)

"""Counting and finding n-grams by sorting, without a Python loop over the text.

Legend: m symbols of a text, g distinct n-grams.  A symbol is a number below 2**16, so that four fit into one 64-bit
key; the symbol BREAK stands for anything that an n-gram must not contain.
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
    """The symbols (m,) of a text, split into sentences at `starts`, with access to its n-grams as integer keys."""

    def __init__(self, symbols: np.ndarray, starts: np.ndarray):
        self.symbols = symbols.astype(np.uint64)
        self.starts = starts
        begins = np.zeros(len(symbols) + LONGEST, dtype=bool)
        begins[starts] = True
        begins[len(symbols) :] = True
        ok = np.append(symbols != BREAK, np.zeros(LONGEST - 1, dtype=bool))
        reach = ok[: len(symbols)].astype(np.int8)
        extends = reach > 0
        for step in range(1, LONGEST):
            extends = extends & ok[step : len(symbols) + step] & ~begins[step : len(symbols) + step]
            reach += extends
        self.reach = reach  # (m,) the length of the longest n-gram that begins at each symbol
        self._begins = begins

    def __len__(self) -> int:
        return len(self.symbols)

    def at(self, n: int) -> np.ndarray:
        """Return the positions at which an n-gram begins."""
        return np.flatnonzero(self.reach >= n)

    def keys(self, places: np.ndarray, n: int) -> np.ndarray:
        """Return the keys of the n-grams that begin at `places`, unique among n-grams of the same length."""
        key = self.symbols[places]
        for step in range(1, n):
            key = (key << _BITS) | self.symbols[places + step]
        return key

    def before(self, places: np.ndarray) -> np.ndarray:
        """Return the symbol before each position, BREAK at the start of a sentence."""
        return np.where(self._begins[places], BREAK, self.symbols[places - 1])

    def after(self, places: np.ndarray, n: int) -> np.ndarray:
        """Return the symbol after the n-gram at each position, BREAK at the end of a sentence."""
        ends = places + n
        inside = np.minimum(ends, len(self.symbols) - 1)
        return np.where(self._begins[ends], BREAK, self.symbols[inside])


@dataclass(frozen=True)
class Table:
    """The sufficiently frequent n-grams of one length of a text: sorted keys (g,) and counts (g,)."""

    n: int
    keys: np.ndarray
    counts: np.ndarray

    @classmethod
    def count(cls, text: Text, n: int, least: int) -> Table:
        """Count the n-grams of a text and keep those that occur at least `least` times."""
        keys, counts = _count(text.keys(text.at(n), n), n)
        frequent = counts >= least
        return cls(n, keys[frequent], counts[frequent])

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Return the index of each key in the table, or -1."""
        if self.n == 1:
            return self._index_of[keys]
        indices = np.full(len(keys), -1, dtype=np.int64)
        candidates = np.flatnonzero(self._sieve[_hash(keys)])
        nearest = np.minimum(np.searchsorted(self.keys, keys[candidates]), len(self.keys) - 1)
        hits = self.keys[nearest] == keys[candidates]
        indices[candidates[hits]] = nearest[hits]
        return indices

    def keep(self, mask: np.ndarray) -> Table:
        """Return the table without the n-grams for which `mask` (g,) is false."""
        return Table(self.n, self.keys[mask], self.counts[mask])

    @cached_property
    def _index_of(self) -> np.ndarray:
        """The index of every symbol in a table of unigrams, or -1."""
        indices = np.full(MOST_SYMBOLS + 1, -1, dtype=np.int64)
        indices[self.keys] = np.arange(len(self.keys))
        return indices

    @cached_property
    def _sieve(self) -> np.ndarray:
        """A hash filter that rejects most absent keys before the binary search; most n-grams of a text are absent."""
        sieve = np.zeros(1 << _SIEVE_BITS, dtype=bool)
        sieve[_hash(self.keys)] = True
        return sieve

    def __reduce__(self) -> tuple[Any, ...]:
        return Table, (self.n, self.keys, self.counts)  # the sieve is cheap to rebuild

    def part(self, start: int, stop: int) -> np.ndarray:
        """Return the keys (g,) of the symbols [start, stop) of each n-gram."""
        shifted = self.keys >> np.uint64(16 * (self.n - stop))
        return shifted & np.uint64((1 << 16 * (stop - start)) - 1)


def _count(keys: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct n-gram keys, sorted, and their counts."""
    if n > 1:
        return np.unique(keys, return_counts=True)
    counts = np.bincount(keys.astype(np.int64))  # unigrams need no sorting
    symbols = np.flatnonzero(counts)
    return symbols.astype(np.uint64), counts[symbols]


def _hash(keys: np.ndarray) -> np.ndarray:
    """Hash keys to 2**_SIEVE_BITS buckets (Fibonacci hashing)."""
    return (keys * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(64 - _SIEVE_BITS)


def entropies(text: Text, table: Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the branching entropies before and after each n-gram of a table, two arrays (g,) in nats.

    Each occurrence at the edge of a sentence counts as a distinct neighbor, so an n-gram that is often at an edge has a
    high entropy on that side.
    """
    places = text.at(table.n)
    indices = table.find(text.keys(places, table.n))
    places, indices = places[indices >= 0], indices[indices >= 0]
    size = len(table.keys)
    return _entropy(indices, text.before(places), size), _entropy(indices, text.after(places, table.n), size)


def _entropy(groups: np.ndarray, neighbors: np.ndarray, size: int) -> np.ndarray:
    """Return the entropy of the neighbors in each of `size` groups."""
    pairs, counts = np.unique((groups.astype(np.uint64) << _BITS) | neighbors.astype(np.uint64), return_counts=True)
    group, edge = (pairs >> _BITS).astype(np.int64), (pairs & np.uint64(MOST_SYMBOLS)) == BREAK
    totals = np.bincount(group, counts, size)
    # An outcome with count c of total t contributes -c/t log c/t; an edge seen c times is c outcomes of count 1.
    logs = counts * np.where(edge, 0.0, np.log(counts))
    sums = np.bincount(group, logs, size)
    return np.where(totals > 0, np.log(np.maximum(totals, 1)) - sums / np.maximum(totals, 1), 0.0)

"""The order in which the items of a source are visited: a random permutation for each key, and its inverse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ernie.data import seeded_rng


class Order(Protocol):
    """A permutation of range(n) for each key, as a pure function."""

    def indices(self, positions: np.ndarray, key: int) -> np.ndarray:
        """Return the items (k,) at positions (k,)."""
        ...

    def positions_of(self, items: np.ndarray, key: int) -> np.ndarray:
        """Return the positions (k,) of items (k,)."""
        ...

    def shards(self, positions: np.ndarray, key: int) -> list[int]:
        """Return the numbers of the shards in which the items at these positions are, and those that come next."""
        ...


@dataclass(frozen=True)
class Everywhere:
    """All `size` items are shuffled together; they are in any of `shards_in_all`."""

    size: int
    shards_in_all: int = 0

    def indices(self, positions: np.ndarray, key: int) -> np.ndarray:
        """Return the items (k,) at positions (k,)."""
        return seeded_rng.permute(positions, self.size, key)

    def positions_of(self, items: np.ndarray, key: int) -> np.ndarray:
        """Return the positions (k,) of items (k,)."""
        return seeded_rng.positions_of(items, self.size, key)

    def shards(self, positions: np.ndarray, key: int) -> list[int]:
        """Return the numbers of all shards."""
        return list(range(self.shards_in_all))


@dataclass(frozen=True)
class SomeShards:
    """The items of `mixed` shards at a time are shuffled together, and the shards are, too.

    `sizes` are the numbers of items of the shards.
    """

    sizes: tuple[int, ...]
    mixed: int

    def indices(self, positions: np.ndarray, key: int) -> np.ndarray:
        """Return the items (k,) at positions (k,)."""
        plan, positions = _Plan(self, key), np.asarray(positions)
        windows = np.searchsorted(plan.windows, positions, side="right") - 1
        found = np.empty(len(positions), np.int64)
        for window in np.unique(windows).tolist():
            own, start = windows == window, plan.windows[window]
            size = plan.windows[window + 1] - start
            places = start + seeded_rng.permute(positions[own] - start, int(size), plan.key(window))
            ranks = np.searchsorted(plan.starts, places, side="right") - 1
            found[own] = plan.firsts[plan.shards[ranks]] + places - plan.starts[ranks]
        return found

    def positions_of(self, items: np.ndarray, key: int) -> np.ndarray:
        """Return the positions (k,) of items (k,)."""
        plan, items = _Plan(self, key), np.asarray(items)
        shards = np.searchsorted(plan.firsts, items, side="right") - 1
        places = plan.starts[plan.ranks[shards]] + items - plan.firsts[shards]
        windows = np.searchsorted(plan.windows, places, side="right") - 1
        found = np.empty(len(items), np.int64)
        for window in np.unique(windows).tolist():
            own, start = windows == window, plan.windows[window]
            size = plan.windows[window + 1] - start
            found[own] = start + seeded_rng.positions_of(places[own] - start, int(size), plan.key(window))
        return found

    def shards(self, positions: np.ndarray, key: int) -> list[int]:
        """Return the shards that are mixed at these positions, and the next that are."""
        plan = _Plan(self, key)
        windows = np.unique(np.searchsorted(plan.windows, positions, side="right") - 1)
        first, last = int(windows.min()), int(windows.max())
        if last - first > 1:  # at the end of an epoch
            return plan.shards[[*range(self.mixed), *range(first * self.mixed, len(plan.shards))]].tolist()
        return plan.shards[first * self.mixed : (last + 2 - (last > first)) * self.mixed].tolist()


class _Plan:
    """The order of shards under a key, and where each begins in it.

    `shards` (s,) are their numbers in this order and `ranks` (s,) their places; `starts` (s,) are the positions at
    which they begin, `windows` (w + 1,) those at which windows of mixed shards do; `firsts` (s,) are first items.
    """

    def __init__(self, order: SomeShards, key: int):
        sizes, count = np.array(order.sizes, np.int64), len(order.sizes)
        self._key = key
        self.firsts = np.cumsum(sizes) - sizes
        self.shards = seeded_rng.permute(np.arange(count), count, seeded_rng.key("shards", key))
        self.ranks = np.empty(count, np.int64)
        self.ranks[self.shards] = np.arange(count)
        ends = np.cumsum(sizes[self.shards])
        self.starts = ends - sizes[self.shards]
        self.windows = np.append(self.starts[:: order.mixed], ends[-1:])

    def key(self, window: int) -> int:
        """Return the key of the permutation in a window."""
        return seeded_rng.key("window", self._key, window)


def order_of(sizes: Sequence[int], mixed: int) -> Order:
    """Return the order of items in shards of these sizes, of which `mixed` are mixed at a time; 0 mixes all."""
    return SomeShards(tuple(sizes), mixed) if 0 < mixed < len(sizes) else Everywhere(sum(sizes), len(sizes))

"""Orders of items: permutations that can be computed anywhere, and, of some shards at a time, that stay near."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ernie.data import seeded_rng
from ernie.data.order import Everywhere, SomeShards, order_of

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=12)


@given(sizes=SIZES, mixed=st.integers(0, 14), key=st.integers(0, 2**100))
def test_every_item_has_one_position_and_both_are_found_from_any_part(sizes: list[int], mixed: int, key: int) -> None:
    order, count = order_of(sizes, mixed), sum(sizes)
    found = order.indices(np.arange(count), key)
    assert sorted(found.tolist()) == list(range(count))
    some = np.arange(0, count, 3)[::-1]
    assert order.indices(some, key).tolist() == found[some].tolist()
    assert order.positions_of(found, key).tolist() == list(range(count))


@given(sizes=SIZES, mixed=st.integers(1, 4), key=st.integers(0, 2**100), first=st.integers(0, 400))
def test_neighbors_are_in_few_shards_which_are_known_before(sizes: list[int], mixed: int, key: int, first: int) -> None:
    order, count = SomeShards(tuple(sizes), mixed), sum(sizes)
    positions = np.arange(first, first + min(5, min(sizes))) % count
    shards = np.searchsorted(np.cumsum(sizes), order.indices(positions, key), side="right")
    known = order.shards(positions, key)
    assert set(shards.tolist()) <= set(known)
    assert len(known) <= 2 * mixed or positions[0] > positions[-1]


def test_shards_and_their_documents_come_in_another_order_with_each_key() -> None:
    order = SomeShards((50,) * 20, 2)
    orders = [order.indices(np.arange(1000), key) for key in range(20)]
    firsts = {tuple(sorted(set((found[:100] // 50).tolist()))) for found in orders}
    assert all(len(shards) == 2 for shards in firsts) and len(firsts) > 12
    inside = orders[0][:100]
    assert 30 < np.count_nonzero(np.diff(inside // 50)) < 70  # the two shards are mixed


@pytest.mark.parametrize("mixed", [0, 3, 9])
def test_all_shards_together_are_the_permutation_that_it_always_was(mixed: int) -> None:
    order = order_of([5, 6, 7], mixed)
    assert isinstance(order, Everywhere)
    assert order.indices(np.arange(18), 7).tolist() == seeded_rng.permute(np.arange(18), 18, 7).tolist()
    assert order.shards(np.arange(2), 7) == [0, 1, 2]

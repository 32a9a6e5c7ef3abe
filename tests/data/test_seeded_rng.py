"""Order is a pure function: keyed permutations are bijections that look random, keys depend on every part."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ernie.data import seeded_rng

GOLDEN_KEY = 180989083306401426259623252782636412291
GOLDEN_PERMUTATION = [0, 7, 2, 3, 6, 1, 4, 5]
GOLDEN_DRAWS = [58, 855, 460, 688]

keys = st.integers(min_value=0, max_value=2**128 - 1)


@given(st.integers(min_value=1, max_value=3000), keys)
def test_a_permutation_visits_every_item_exactly_once(size: int, key: int) -> None:
    found = seeded_rng.permute(np.arange(size), size, key)
    assert sorted(found.tolist()) == list(range(size))


@given(st.integers(min_value=1, max_value=3000), keys, st.data())
def test_a_part_of_a_permutation_equals_that_part_of_the_whole(size: int, key: int, data: st.DataObject) -> None:
    places = np.array(data.draw(st.lists(st.integers(min_value=0, max_value=size - 1), max_size=20)), dtype=np.int64)
    whole = seeded_rng.permute(np.arange(size), size, key)
    assert seeded_rng.permute(places, size, key).tolist() == whole[places].tolist()


@given(st.integers(min_value=1, max_value=2**62), keys, st.integers(min_value=0))
def test_the_position_of_an_item_is_where_the_permutation_puts_it(size: int, key: int, place: int) -> None:
    places = np.array([place % size, 0, size - 1], dtype=np.int64)
    items = seeded_rng.permute(places, size, key)
    assert seeded_rng.positions_of(items, size, key).tolist() == places.tolist()


@given(st.integers(min_value=2, max_value=2**62), keys)
def test_permutations_of_any_size_stay_in_range_and_repeat_nothing(size: int, key: int) -> None:
    places = np.unique(np.linspace(0, size - 1, 50).astype(np.int64).clip(0, size - 1))
    found = seeded_rng.permute(places, size, key)
    assert found.dtype == np.int64
    assert found.min() >= 0
    assert found.max() < size
    assert len(np.unique(found)) == len(places)


@pytest.mark.parametrize("size", [2, 3, 5, 16, 17, 30])
def test_over_many_keys_every_item_takes_every_position_equally_often(size: int) -> None:
    draws = 60 * size
    counts = np.zeros((size, size))
    for i in range(draws):
        counts[np.arange(size), seeded_rng.permute(np.arange(size), size, seeded_rng.key("test", i))] += 1
    expected = draws / size
    statistic = ((counts - expected) ** 2 / expected).sum()
    freedom = (size - 1) ** 2
    assert abs(statistic - freedom) < 5 * np.sqrt(2 * freedom) + 5


def test_a_permutation_keeps_no_trace_of_the_original_order() -> None:
    size = 10_000
    found = seeded_rng.permute(np.arange(size), size, seeded_rng.key(0))
    assert abs(np.corrcoef(np.arange(size), found)[0, 1]) < 0.04  # four standard deviations
    steps = np.diff(found)
    assert (np.abs(steps) == 1).sum() < 12  # two neighbors stay adjacent about twice on average
    assert abs((steps > 0).mean() - 0.5) < 0.02


def test_keys_depend_on_every_part_its_type_and_the_order() -> None:
    keys = [
        seeded_rng.key(*parts)
        for parts in [(1, 2), (2, 1), (12,), ("1", 2), (1, "2"), (1,), (), ("1\x1f2",), (1, 2, 0)]
    ]
    assert len(set(keys)) == len(keys)
    assert seeded_rng.key(1, "a") == seeded_rng.key(1, "a")


def test_a_key_is_the_same_on_every_machine() -> None:
    """Resumed runs depend on it: a changed value here means that old runs can no longer be resumed."""
    assert seeded_rng.key(7, "knowledge_masking", 3) == GOLDEN_KEY
    assert seeded_rng.permute(np.arange(8), 8, GOLDEN_KEY).tolist() == GOLDEN_PERMUTATION
    assert seeded_rng.generator(7, "knowledge_masking", 3).integers(1000, size=4).tolist() == GOLDEN_DRAWS


def test_generators_of_different_parts_are_independent() -> None:
    draws = np.stack([seeded_rng.generator(0, "task", 0, item).random(2000) for item in range(20)])
    correlations = np.corrcoef(draws) - np.eye(20)
    assert np.abs(correlations).max() < 0.12  # five standard deviations
    assert np.array_equal(seeded_rng.generator(0, "task", 0, 3).random(2000), draws[3])

"""The cost model says how long batches take, and keeps up when that changes."""

from __future__ import annotations

import random

import pytest

from serving.cost import CostModel

MEASURED = [(tokens, 0.008 + 0.00006 * tokens) for tokens in (8, 32, 64, 128, 512)]


def test_it_finds_the_line_on_which_the_measurements_lie() -> None:
    cost = CostModel(MEASURED)
    assert cost.fixed == pytest.approx(0.008)
    assert cost.per_token == pytest.approx(0.00006)
    assert cost.seconds(1000) == pytest.approx(0.068)


def test_the_largest_batch_within_a_time_takes_at_most_that_time() -> None:
    cost = CostModel(MEASURED)
    tokens = cost.tokens_within(0.05)
    assert cost.surely(tokens) <= 0.05 < cost.surely(tokens + 1)
    assert cost.tokens_within(0.001) == 0


def test_a_batch_for_an_efficiency_reaches_it() -> None:
    cost = CostModel(MEASURED)
    tokens = cost.tokens_for(0.94)
    assert cost.per_token * tokens / cost.seconds(tokens) == pytest.approx(0.94, abs=0.001)


def test_it_follows_a_machine_that_becomes_twice_as_slow() -> None:
    cost, numbers = CostModel(MEASURED), random.Random(0)
    for _ in range(2000):
        tokens = numbers.randrange(8, 1000)
        cost.observe(tokens, 2 * (0.008 + 0.00006 * tokens) * numbers.uniform(0.95, 1.05))
    assert cost.seconds(500) == pytest.approx(2 * 0.038, rel=0.1)


def test_one_stalled_batch_changes_little() -> None:
    cost, numbers = CostModel(MEASURED), random.Random(0)
    for _ in range(500):
        tokens = numbers.randrange(8, 1000)
        cost.observe(tokens, 0.008 + 0.00006 * tokens)
    before = cost.seconds(500)
    cost.observe(500, 30.0)
    assert cost.seconds(500) < 1.1 * before


def test_few_batches_take_longer_than_the_model_says_they_surely_do() -> None:
    cost, numbers = CostModel(MEASURED), random.Random(0)
    late = 0
    for number in range(6000):
        tokens = numbers.randrange(8, 1000)
        seconds = (0.008 + 0.00006 * tokens) * numbers.lognormvariate(0, 0.2)
        late += number >= 1000 and seconds > cost.surely(tokens)
        cost.observe(tokens, seconds)
    assert 0.02 < late / 5000 < 0.1


@pytest.mark.parametrize("measured", [[(8, 0.01)], [(8, 0.01), (64, 0.005)], [(8, 0.001), (16, 0.004)], [(8, 0.0)]])
def test_strange_measurements_give_times_that_are_positive_and_grow(measured: list[tuple[int, float]]) -> None:
    cost = CostModel(measured)
    assert 0 < cost.seconds(1) <= cost.seconds(100)
    assert cost.tokens_for(0.9) >= 1

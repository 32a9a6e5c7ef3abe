"""Partitioning a chain into stages: the optimum, with a cost formula that matches the pipeline schedule."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.parallel.pipeline_schedule import pipeline_schedule, simulate
from pretrain.planner.chain import Partition, Piece, best_partition, partition

seconds = st.floats(0.1, 10)
pieces = st.builds(Piece, seconds, st.floats(0, 4), st.floats(0, 2), st.floats(0, 1))


@st.composite
def chains(draw: st.DrawFn) -> tuple[list[Piece], int, int, float]:
    """Pieces, number of stages, micro-batches, and memory that is often scarce."""
    chain = draw(st.lists(pieces, min_size=1, max_size=8))
    stages = draw(st.integers(1, min(4, len(chain))))
    return chain, stages, draw(st.integers(1, 12)), draw(st.one_of(st.just(math.inf), st.floats(1, 30)))


def all_partitions(chain: list[Piece], stages: int, micro_batches: int, memory: float) -> list[Partition]:
    """All partitions of the chain that fit into memory."""
    candidates = [(0, *cuts) for cuts in combinations(range(1, len(chain)), stages - 1)]
    return [found for starts in candidates if (found := partition(chain, starts, micro_batches, memory)) is not None]


@settings(max_examples=400)
@given(chains())
def test_the_partition_is_the_best_of_all(case: tuple[list[Piece], int, int, float]) -> None:
    partitions = all_partitions(*case)
    found = best_partition(*case)
    if not partitions:
        assert found is None
        return
    assert found is not None
    assert found.seconds == pytest.approx(min(other.seconds for other in partitions), rel=1e-12)
    assert found.starts in {other.starts for other in partitions}


@given(st.lists(seconds, min_size=1, max_size=6), st.integers(1, 10))
def test_the_cost_bounds_the_simulated_time_and_is_exact_for_equal_stages(
    stages: list[float], micro_batches: int
) -> None:
    found = best_partition([Piece(value) for value in stages], len(stages), micro_batches)
    assert found is not None
    count = len(stages)
    tables = [pipeline_schedule(stage, count, micro_batches) for stage in range(count)]
    taken = simulate(tables, [value / 3 for value in stages], [2 * value / 3 for value in stages]).end
    assert taken <= found.seconds * (1 + 1e-9)
    if len(set(stages)) == 1:
        assert taken == pytest.approx(found.seconds)


def test_a_stage_holds_one_more_micro_batch_for_each_later_stage() -> None:
    chain = [Piece(1.0, kept=2.0)] * 4
    even, uneven = best_partition(chain, 2, 8, memory=8.0), best_partition(chain, 2, 8, memory=7.0)
    assert even is not None and even.sizes(4) == [2, 2]  # the first stage holds two pieces of two micro-batches
    assert uneven is not None and uneven.sizes(4) == [1, 3]  # the last one holds three of one
    assert best_partition(chain, 2, 8, memory=5.0) is None


def test_long_chains_are_partitioned_quickly() -> None:
    chain = [Piece(1.0 + (i % 3) / 10, sent=0.01) for i in range(98)]
    found = best_partition(chain, 32, 64)
    assert found is not None and sum(found.sizes(98)) == 98

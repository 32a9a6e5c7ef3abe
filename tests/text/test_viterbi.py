"""Segmenting runs of symbols into words."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ernie.text.segment import viterbi
from ernie.text.segment.viterbi import best_cut

LONGEST = 3


def cuts(n: int) -> list[list[int]]:
    """All ways to cut n symbols into words."""
    if n == 0:
        return [[]]
    return [[first, *rest] for first in range(1, min(n, LONGEST) + 1) for rest in cuts(n - first)]


def score_of(lengths: list[int], start: int, scores: np.ndarray) -> float:
    total = 0.0
    for length in lengths:
        total += scores[length - 1, start]
        start += length
    return total


RUNS = st.lists(st.tuples(st.booleans(), st.integers(1, 6)), min_size=1, max_size=6)


@given(runs=RUNS, seed=st.integers(0, 1000))
def test_every_run_gets_a_segmentation_with_the_highest_score(runs: list[tuple[bool, int]], seed: int) -> None:
    inside = np.array([kind for kind, size in runs for _ in range(size)])
    starts = np.cumsum([0, *(size for _, size in runs)])[:-1]
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(LONGEST, len(inside)))
    scores[1:][rng.random((LONGEST - 1, len(inside))) < 0.4] = -np.inf
    lengths = best_cut(inside, starts, scores)
    for (kind, size), start in zip(runs, starts.tolist(), strict=True):
        found = [n for n in lengths[start : start + size].tolist() if n]
        assert sum(found) == size
        if kind:
            best = max(score_of(cut, start, scores) for cut in cuts(size))
            assert np.isclose(score_of(found, start, scores), best)
        else:
            assert found == [1] * size


def test_a_run_longer_than_the_limit_is_split_in_two() -> None:
    size = viterbi._LONGEST_RUN + 4
    scores = np.zeros((2, size))
    scores[1] = 1.0
    lengths = best_cut(np.ones(size, bool), np.array([0]), scores)
    assert lengths.sum() == size
    assert lengths[viterbi._LONGEST_RUN] == 2

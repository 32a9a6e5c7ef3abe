"""Draws of rows and swaps of answers: intervals of scores, and whether two models differ."""

from __future__ import annotations

from dataclasses import replace
from operator import eq
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest
from support.toys import TOYS

from tasks.downstream.base import FinetuneTask, LogitsTask
from tasks.downstream.classify import Classify
from tasks.downstream.rank import Rank
from tasks.downstream.resampling import Judged, interval, mcnemar

CLASSIFY = Classify(labels=("a", "b", "c"))
WITHOUT_SUMS = ("spearman",)
KINDS = sorted(kind for kind, toy in TOYS.items() if isinstance(toy.task, LogitsTask))


def answered(task: FinetuneTask, kind: str, count: int, seed: int) -> tuple[list[Any], list[Any]]:
    """Targets of a toy's rows, and predictions of which a third are those of other rows."""
    toy = TOYS[kind]
    rows, rng = toy.rows(count, seed=3), np.random.default_rng(seed)
    predictions = [task.prediction(toy.perfect(row)) for row in rows]
    mixed = [
        predictions[int(rng.integers(count))] if rng.random() < 1 / 3 else prediction for prediction in predictions
    ]
    if kind in ("rank", "regress"):
        mixed = [float(prediction) + float(rng.normal(0, 0.3)) for prediction in mixed]
    if kind == "tag":  # as many tags as words
        mixed = [[*given, *["O"] * len(own)][: len(own)] for given, own in zip(mixed, predictions, strict=True)]
    return [task.target(row) for row in rows], mixed


@pytest.mark.parametrize("kind", KINDS)
def test_every_metric_of_every_kind_is_drawn_as_it_is_computed(kind: str) -> None:
    task = TOYS[kind].task
    targets, predictions = answered(task, kind, 30, seed=0)
    for name in task.known_metrics:
        judged = Judged.of(task, name, targets)
        found = judged.sums(predictions)
        assert (found is None) == (name in WITHOUT_SUMS)
        if found is None:
            continue
        units_UK, score = found
        assert score(units_UK.sum(0, keepdims=True))[0] == pytest.approx(judged.score(predictions))
        counts_U = np.random.default_rng(1).integers(0, 3, judged.units)
        if kind == "rank":  # drawn twice, a query's texts would be ranked against themselves
            counts_U = np.minimum(counts_U, 1)
        rows = np.repeat(np.arange(30), counts_U[judged.unit_N])
        expected = judged.metric([targets[row] for row in rows], [predictions[row] for row in rows])
        assert score(counts_U[None] @ units_UK)[0] == pytest.approx(expected)


def test_the_interval_of_an_accuracy_is_that_of_its_standard_error() -> None:
    targets, predictions = [0] * 400, [0] * 300 + [1] * 100
    (draws,) = Judged.of(CLASSIFY, "accuracy", targets).drawn([predictions])
    assert len(draws) == 1000
    low, high = interval(draws)
    error = 1.96 * np.sqrt(0.75 * 0.25 / 400)
    assert (low, high) == pytest.approx((0.75 - error, 0.75 + error), abs=0.006)


def test_the_same_rows_give_the_same_draws_also_of_metrics_without_sums() -> None:
    task = TOYS["regress"].task
    targets, one = answered(task, "regress", 40, seed=0)
    judged = Judged.of(task, "spearman", targets)
    assert judged.sums(one) is None
    first, second = judged.drawn([one, one])
    assert (first == second).all() and len(np.unique(first)) > 10


def test_swapped_answers_tell_what_an_exact_test_tells() -> None:
    targets = [0] * 100
    one = [0] * 60 + [1] * 8 + [0] * 2 + [1] * 30
    other = [0] * 60 + [0] * 8 + [1] * 2 + [1] * 30
    expected = binomtest(8, 10).pvalue
    judged = Judged.of(CLASSIFY, "accuracy", targets)
    assert judged.swapped([one], [other]) == pytest.approx(expected, abs=0.015)
    slow = replace(judged, metric=lambda right, given: sum(map(eq, right, given)) / len(right))
    assert slow.sums(one) is None
    assert slow.swapped([one], [other]) == pytest.approx(expected, abs=0.05)
    assert judged.swapped([one], [one]) == 1
    assert judged.swapped([one, one], [other, other]) == pytest.approx(expected, abs=0.015)


def test_swapped_numbers_are_correlated_as_they_are() -> None:
    task = TOYS["regress"].task
    targets, one = answered(task, "regress", 40, seed=0)
    other = [number + 5 for number in answered(task, "regress", 40, seed=1)[1]]
    judged = Judged.of(task, "pearson", targets)
    swap_RU = np.random.default_rng(0).integers(0, 2, (5, 40))
    quick = judged._swapped(one, other, (judged.sums(one), judged.sums(other)), swap_RU)
    assert quick == pytest.approx(judged._swapped(one, other, (None, None), swap_RU))


def test_chance_finds_a_difference_in_about_one_of_twenty_pairs() -> None:
    rng, targets = np.random.default_rng(0), [1] * 60
    judged = Judged.of(CLASSIFY, "f1", targets)
    found = [judged.swapped([rng.integers(0, 2, 60).tolist()], [rng.integers(0, 2, 60).tolist()]) for _ in range(40)]
    assert sum(p < 0.05 for p in found) <= 6
    assert 0.3 < np.median(found) < 0.8


def test_the_texts_of_a_query_are_drawn_together() -> None:
    targets = [(query, int(n == 0)) for query in ("x", "y", "z") for n in range(4)]
    judged = Judged.of(Rank(), "mrr", targets)
    assert judged.units == 3
    scores = [0.9, 0.1, 0.2, 0.3, 0.4, 0.9, 0.1, 0.2, 0.9, 0.1, 0.2, 0.3]
    (draws,) = judged.drawn([scores])
    assert {*np.unique(draws).round(6).tolist()} == {0.5, round(2 / 3, 6), round(5 / 6, 6), 1.0}


def test_mcnemar_counts_the_rows_that_one_model_alone_has_right() -> None:
    one = np.array([True] * 12 + [False] * 3 + [True] * 50)
    other = np.array([False] * 12 + [True] * 3 + [True] * 50)
    assert mcnemar(one, other) == (12, 3, pytest.approx(binomtest(12, 15).pvalue))
    assert mcnemar(one, one) == (0, 0, 1.0)

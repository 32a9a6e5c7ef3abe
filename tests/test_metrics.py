"""Metrics: hand-computed values, majority baselines, and the coverage of confidence intervals."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import f1_score

from ernie.errors import UserError
from ernie.metrics import METRICS, score

PREDICTED = np.array([1, 1, 0, 0, 1, 2])
LABELS = np.array([1, 0, 0, 1, 1, 2])
LOSSES = np.log(np.array([1.0, 2.0, 4.0, 1.0, 2.0, 4.0]))


def test_a_perplexity_is_finite_however_large_the_losses_are() -> None:
    losses = np.array([200.0, 300.0, 9_000.0], np.float32)  # the exponential of 89 overflows in float32
    found = score("perplexity", np.zeros(3, int), np.zeros(3, int), losses)
    assert np.isfinite([found.value, found.low, found.high, *found.draws]).all()
    assert found.value == pytest.approx(np.exp(700.0))
    assert score("perplexity", np.zeros(1, int), np.zeros(1, int), losses[:1]).value == pytest.approx(np.exp(200.0))


def test_a_score_without_targets_is_refused() -> None:
    nothing = np.zeros(0)
    with pytest.raises(UserError, match="accuracy: there are no targets to score"):
        score("accuracy", nothing, nothing, nothing)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("accuracy", 4 / 6),
        ("f1", 2 / 3),  # class 1: two right of three predicted, of three labeled
        ("macro_f1", (0.5 + 2 / 3 + 1) / 3),
        ("perplexity", 2.0),
    ],
)
def test_metrics_equal_hand_computed_values(name: str, value: float) -> None:
    found = score(name, PREDICTED, LABELS, LOSSES)
    assert found.value == pytest.approx(value)
    assert found.count == 6


@pytest.mark.parametrize(
    ("name", "majority"),
    [
        ("accuracy", 0.7),
        ("f1", 2 * 0.3 / 1.3),  # always predicting class 1, though class 0 is more frequent
        ("macro_f1", 0.5 * 2 * 0.7 / 1.7),
        ("perplexity", math.exp(-0.7 * math.log(0.7) - 0.3 * math.log(0.3))),
    ],
)
def test_the_majority_is_the_score_of_a_model_without_input(name: str, majority: float) -> None:
    labels = np.array([0] * 7 + [1] * 3)
    assert score(name, labels, labels, np.ones(10)).majority == pytest.approx(majority)


def test_a_predicted_class_without_labels_counts_as_in_scikit_learn() -> None:
    # Class 0: one found, one missed; class 1: found; class 2: predicted once, wrongly.
    predicted, labels = np.array([0, 2, 1]), np.array([0, 0, 1])
    found = score("macro_f1", predicted, labels, np.ones(3)).value
    assert found == pytest.approx(5 / 9) == f1_score(labels, predicted, average="macro")


def test_f1_without_true_positives_is_zero() -> None:
    assert score("f1", np.zeros(4, int), np.zeros(4, int), np.ones(4)).value == 0.0


@pytest.mark.parametrize("name", METRICS)
def test_the_interval_contains_the_value_and_is_deterministic(name: str) -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(3, size=300)
    predicted = np.where(rng.random(300) < 0.6, labels, rng.integers(3, size=300))
    first, second = (score(name, predicted, labels, rng_losses) for rng_losses in [rng.random(300)] * 2)
    assert first == second
    assert first.low < first.value < first.high


def test_the_interval_excludes_one_draw_in_forty_on_each_side() -> None:
    found = score("perplexity", LABELS, LABELS, np.random.default_rng(1).random(6))
    draws = sorted(found.draws)
    assert len(draws) == 200
    assert [found.low, found.high] == pytest.approx([draws[5], draws[194]], rel=1e-5)


@pytest.mark.parametrize(("name", "expected"), [("accuracy", (0.025, 0.975)), ("perplexity", (-0.975, -0.025))])
def test_an_improvement_is_computed_per_draw(name: str, expected: tuple) -> None:
    other = replace(score(name, LABELS, LABELS, LOSSES), draws=np.linspace(3, 9, 201))
    assert replace(other, draws=np.linspace(3, 10, 201)).improvement_over(other) == pytest.approx(expected)


def test_the_interval_of_a_single_item_resamples_its_targets() -> None:
    single, none = (score("accuracy", PREDICTED, LABELS, LOSSES, items) for items in (np.full(6, 7), None))
    assert single == none
    assert single.low < single.value < single.high


def test_95_percent_of_the_intervals_cover_the_true_value() -> None:
    rng = np.random.default_rng(2)
    right = rng.random((200, 400)) < 0.8
    scores = [score("accuracy", row.astype(int), np.ones(400, int), np.ones(400)) for row in right]
    covered = sum(found.low <= 0.8 <= found.high for found in scores)
    assert 180 <= covered <= 198  # binomial(200, 0.95): 190 with a deviation of 3


def test_the_interval_accounts_for_correlated_targets_in_a_document() -> None:
    """Documents of 50 targets each, some easier than others: an interval over targets would cover one time in two."""
    rng = np.random.default_rng(3)
    documents = np.repeat(np.arange(20), 50)
    covered = {"documents": 0, "targets": 0}
    for _ in range(100):
        ease = rng.beta(8, 2, 20)  # 0.8 on average
        right = (rng.random(1000) < ease[documents]).astype(int)
        for unit, items in (("documents", documents), ("targets", None)):
            found = score("accuracy", right, np.ones(1000, int), np.ones(1000), items)
            covered[unit] += found.low <= 0.8 <= found.high
    assert covered["documents"] >= 88  # with 20 documents, about 0.93 of them
    assert covered["targets"] <= 70


def test_the_interval_does_not_depend_on_the_order_of_targets() -> None:
    rng = np.random.default_rng(4)
    labels, documents = rng.integers(3, size=300), rng.integers(7, size=300)
    predicted = np.where(rng.random(300) < 0.6, labels, 0)
    shuffled = rng.permutation(300)
    first = score("macro_f1", predicted, labels, np.ones(300), documents)
    second = score("macro_f1", predicted[shuffled], labels[shuffled], np.ones(300), documents[shuffled])
    assert first == second


def test_a_score_is_worse_if_nearly_all_of_its_draws_are() -> None:
    rng = np.random.default_rng(5)
    documents, hard = np.repeat(np.arange(20), 10), rng.random(200) < 0.3
    labels, right = np.ones(200, int), np.where(hard, 0, 1)
    lost = right.copy()
    lost[::10] = 0  # one target of each document
    better, worse = (score("accuracy", correct, labels, np.ones(200), documents) for correct in (right, lost))
    assert worse.high > better.low
    assert worse.is_worse_than(better)
    assert not better.is_worse_than(worse)
    assert not better.is_worse_than(better)


def test_a_metric_that_a_module_adds_is_scored_with_interval_and_majority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, "halved", lambda predicted, labels, losses: float((predicted == labels).mean()) / 2)
    found, accuracy = (score(name, PREDICTED, LABELS, LOSSES) for name in ("halved", "accuracy"))
    assert (2 * found.value, 2 * found.majority) == pytest.approx((accuracy.value, accuracy.majority))
    assert (2 * found.low, 2 * found.high) == pytest.approx((accuracy.low, accuracy.high))


def test_an_unknown_metric_is_a_user_error() -> None:
    with pytest.raises(UserError, match=r"there is no metric 'acuracy'. Did you mean 'accuracy'\?"):
        score("acuracy", LABELS, LABELS, LOSSES)


def test_goodness_is_one_for_a_perfect_model_and_lower_for_a_poor_one() -> None:
    for name in METRICS:
        right, wrong = np.zeros(4), np.full(4, 3.0)
        perfect = score(name, LABELS[:4], LABELS[:4], right)
        poor = score(name, 1 - LABELS[:4], LABELS[:4], wrong)
        assert perfect.normalized_score == 1 > poor.normalized_score >= 0
        assert perfect.lower_is_better == (perfect.value < poor.value)

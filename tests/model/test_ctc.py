"""CTC as Graves et al. define it: against all alignments, finite differences, and on long audio."""

from __future__ import annotations

from itertools import groupby, product

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.audio.lengths import min_vectors
from ernie.data.batch import Layout
from ernie.model.speech import ctc_loss

BLANK = 0


def collapsed(path: tuple[int, ...]) -> list[int]:
    return [label for label, _ in groupby(path) if label != BLANK]


def loss_by_enumeration(logits_TV: np.ndarray, labels: list[int]) -> float:
    """-log of the labels' probability, summed over all paths."""
    exact = logits_TV.astype(np.float64)
    log_TV = exact - np.log(np.exp(exact).sum(1, keepdims=True))
    T, V = log_TV.shape
    paths = [path for path in product(range(V), repeat=T) if collapsed(path) == labels]
    return -float(np.logaddexp.reduce([sum(log_TV[t, label] for t, label in enumerate(path)) for path in paths]))


def loss_of(logits: list[np.ndarray], labels: list[list[int]]) -> tuple[float, np.ndarray]:
    """The loss of a batch, and its gradient with respect to the logits."""
    x_TV = paddle.to_tensor(np.concatenate(logits).astype(np.float32), stop_gradient=False)
    layout = Layout.of_lengths([len(sequence) for sequence in logits])
    joined = np.array([label for sequence in labels for label in sequence], np.int64)
    found = ctc_loss(x_TV, layout, joined, Layout.of_lengths([len(sequence) for sequence in labels]), BLANK)
    found.total.backward()
    assert x_TV.grad is not None
    return float(found.total), x_TV.grad.numpy()


cases = st.tuples(st.integers(1, 6), st.integers(2, 4), st.lists(st.integers(1, 3), max_size=4), st.integers(0, 10**6))


@settings(max_examples=200, deadline=None)
@given(cases)
def test_the_loss_sums_over_all_alignments(case) -> None:
    T, V, labels, seed = case
    labels = [min(label, V - 1) for label in labels]
    logits = np.random.default_rng(seed).normal(0, 2, (T, V))
    if min_vectors(np.array(labels, np.int64)) > T:
        with pytest.raises(ValueError, match="fewer vectors than its labels need"):
            loss_of([logits], [labels])
        return
    assert loss_of([logits], [labels])[0] == pytest.approx(loss_by_enumeration(logits, labels), rel=1e-5, abs=1e-5)


def test_a_batch_is_the_sum_of_its_sequences_with_independent_gradients() -> None:
    rng = np.random.default_rng(1)
    logits = [rng.normal(size=(length, 4)) for length in (5, 1, 7)]
    labels = [[1, 1], [], [3, 2, 1]]
    total, gradient = loss_of(logits, labels)
    alone = [loss_of([x], [y]) for x, y in zip(logits, labels, strict=True)]
    assert total == pytest.approx(sum(loss for loss, _ in alone), rel=1e-5)
    np.testing.assert_allclose(gradient, np.concatenate([g for _, g in alone]), atol=1e-5)


def test_the_gradient_matches_finite_differences_and_sums_to_zero_in_every_vector() -> None:
    rng = np.random.default_rng(2)
    logits, labels = rng.normal(size=(6, 4)), [2, 2, 1]
    _, gradient = loss_of([logits], [labels])
    np.testing.assert_allclose(gradient.sum(1), 0, atol=1e-5)
    step = 1e-5
    for t, v in product(range(6), range(4)):
        ahead, behind = logits.copy(), logits.copy()
        ahead[t, v] += step
        behind[t, v] -= step
        slope = (loss_by_enumeration(ahead, labels) - loss_by_enumeration(behind, labels)) / (2 * step)
        assert gradient[t, v] == pytest.approx(slope, rel=1e-3, abs=1e-5)


def test_long_audio_gives_a_finite_loss_that_double_precision_confirms() -> None:
    rng = np.random.default_rng(3)
    logits, labels = rng.normal(0, 3, (2000, 30)).astype(np.float32), rng.integers(1, 30, 150).tolist()
    found, gradient = loss_of([logits], [labels])
    assert np.isfinite(gradient).all()
    assert found == pytest.approx(loss_by_recursion(logits, labels), rel=1e-4)


def loss_by_recursion(logits_TV: np.ndarray, labels: list[int]) -> float:
    """-log of the labels' probability by the forward recursion in double precision."""
    exact = logits_TV.astype(np.float64)
    log_TV = exact - np.logaddexp.reduce(exact, 1)[:, None]
    states = [BLANK, *(state for label in labels for state in (label, BLANK))]
    a = np.full(len(states), -np.inf)
    a[0], a[1] = log_TV[0, BLANK], log_TV[0, labels[0]]
    skips = np.array([s > 1 and states[s] != BLANK and states[s] != states[s - 2] for s in range(len(states))])
    for row in log_TV[1:]:
        one, two = np.append(-np.inf, a[:-1]), np.append([-np.inf, -np.inf], a[:-2])
        a = np.logaddexp(np.logaddexp(a, one), np.where(skips, two, -np.inf)) + row[states]
    return -float(np.logaddexp(a[-1], a[-2]))

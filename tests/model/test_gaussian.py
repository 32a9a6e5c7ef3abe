"""Distributions of samples: closed forms against random samples, and the regularized divergence."""

from __future__ import annotations

import math

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.model.gaussian import MIN_LOG_SCALE, Gaussian, divergence, regularized_divergence

means, logs = st.floats(-1, 1), st.floats(-1.5, 1.5)


def scalar(mean: float, log_scale: float) -> Gaussian:
    return Gaussian(paddle.to_tensor([[mean]]), paddle.to_tensor([[log_scale]]))


def test_the_density_is_normal() -> None:
    # At one deviation from the mean: log(0.5) + 1/2 + log(2 pi) / 2.
    found = scalar(0.25, math.log(0.5)).nats(paddle.to_tensor([[0.75]]))
    assert found.item() == pytest.approx(math.log(0.5) + 0.5 + 0.5 * math.log(2 * math.pi), rel=1e-6)


@settings(max_examples=15, deadline=None)
@given(means, logs, means, logs)
def test_the_divergence_matches_a_sample_mean_within_one_percent(a: float, b: float, c: float, d: float) -> None:
    q, p = scalar(a, b), scalar(c, d)
    noise = np.random.default_rng(0).standard_normal(400_000)
    noise = np.concatenate([noise, -noise])  # so that the mean of the samples is exact
    noise /= noise.std()
    samples = q.from_noise(paddle.to_tensor(noise.astype(np.float32)))
    expected = float((p.nats(samples) - q.nats(samples)).mean())
    assert divergence(q, p).item() == pytest.approx(expected, rel=0.01, abs=1e-4)


def test_a_distribution_does_not_diverge_from_itself() -> None:
    q = scalar(0.3, -2.0)
    assert divergence(q, q).item() == pytest.approx(0, abs=1e-7)
    assert regularized_divergence(q, q).item() == pytest.approx(0, abs=1e-7)


def test_the_regularization_is_the_squared_difference_of_the_log_scales() -> None:
    q, p = scalar(0.0, -2.0), scalar(0.5, -3.0)
    added = regularized_divergence(q, p, 4.0).item() - divergence(q, p).item()
    assert added == pytest.approx(4.0, rel=1e-4)


def test_smaller_deviations_count_as_the_minimum() -> None:
    sharp, least, other = scalar(0.0, -20.0), scalar(0.0, MIN_LOG_SCALE), scalar(0.1, -3.0)
    assert regularized_divergence(other, sharp).item() == regularized_divergence(other, least).item()
    assert regularized_divergence(sharp, other).item() == regularized_divergence(least, other).item()


def test_composition_equals_successive_application() -> None:
    first, second, noise = scalar(0.5, -1.0), scalar(-0.2, 0.7), paddle.to_tensor([[1.3]])
    twice = second.from_noise(first.from_noise(noise))
    assert second.compose(first).from_noise(noise).item() == pytest.approx(twice.item(), rel=1e-5)

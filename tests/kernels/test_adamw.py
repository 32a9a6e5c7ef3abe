"""The optimizer's step and the norm of the gradients against their definitions in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import paddle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kernels.judging import needs_bf16, normal, quick

from ernie.kernels.adamw import adamw, sum_of_squares
from ernie.kernels.cpu.copies import bf16_copy
from ernie.kernels.types import AdamStep

FIRST = AdamStep(
    lr=0.01, weight_decay=0.1, beta1=0.9, beta2=0.98, epsilon=1e-8, power1=1.0, power2=1.0, gradient_scale=0.5
)
sizes = st.one_of(st.integers(1, 100), st.integers(16_000, 40_000))


def five_steps(size: int, dtype: str, decay: float = 0.1) -> list[np.ndarray]:
    """A weight and its moments after five steps with different gradients."""
    (start,) = normal((size,), seed=size)
    weight = paddle.to_tensor(start.astype(dtype), stop_gradient=False)
    moments = [paddle.zeros([size], dtype) for _ in range(2)]
    for t in range(1, 6):
        weight.grad = paddle.to_tensor(normal((size,), seed=(size, t))[0].astype(dtype))
        with paddle.no_grad():
            adamw(replace(FIRST, weight_decay=decay, power1=0.9**t, power2=0.98**t), weight, weight.grad, *moments)
    return [weight.numpy(), *(moment.numpy() for moment in moments)]


@quick
@given(sizes, st.sampled_from([0.0, 0.1]))
def test_five_steps_equal_the_definition(size: int, decay: float) -> None:
    for found, wanted in zip(five_steps(size, "float32", decay), five_steps(size, "float64", decay), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)


def sparse_steps(rows: int, columns: int, dtype: str, decay: float, loaded: bool) -> list[np.ndarray]:
    """A table and its moments after four steps in which more and more of its rows have gradients."""
    (start,) = normal((rows, columns), seed=(rows, columns))
    weight = paddle.to_tensor(start.astype(dtype), stop_gradient=False)
    moments = [paddle.zeros([rows, columns], dtype) for _ in range(2)]
    for t in range(1, 5):
        if loaded and t == 3:  # the moments of another run
            for moment, other in zip(moments, normal((rows, columns), (rows, columns), seed=rows), strict=True):
                moment.set_value(np.abs(other).astype(dtype))
        gradient = normal((rows, columns), seed=(rows, t))[0] * (np.arange(rows) % 5 < t)[:, None]
        weight.grad = paddle.to_tensor(gradient.astype(dtype))
        with paddle.no_grad():
            adamw(replace(FIRST, weight_decay=decay, power1=0.9**t, power2=0.98**t), weight, weight.grad, *moments)
    return [weight.numpy(), *(moment.numpy() for moment in moments)]


@quick
@given(st.integers(1, 60), st.integers(1, 700), st.sampled_from([0.0, 0.1]), st.booleans())
def test_rows_without_a_gradient_so_far_take_the_steps_of_the_definition(
    rows: int, columns: int, decay: float, loaded: bool
) -> None:
    found, wanted = (sparse_steps(rows, columns, dtype, decay, loaded) for dtype in ("float32", "float64"))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("scale", [np.inf, np.nan])
def test_a_factor_that_is_not_finite_makes_weights_without_a_gradient_nan_too(scale: float) -> None:
    weight = paddle.ones([600])
    weight.stop_gradient, weight.grad = False, paddle.zeros([600])
    with paddle.no_grad():
        step = replace(FIRST, power1=0.9, power2=0.98, gradient_scale=scale)
        adamw(step, weight, weight.grad, paddle.zeros([600]), paddle.zeros([600]))
    assert np.isnan(weight.numpy()).all()


def test_the_definition_follows_the_paper() -> None:
    """Algorithm 2, by hand: apart from the decay, the first step is the rate against the gradient's sign."""
    weight = paddle.to_tensor([1.0, -2.0], "float64", stop_gradient=False)
    weight.grad = paddle.to_tensor([0.3, -40.0], "float64")
    with paddle.no_grad():
        step = replace(FIRST, power1=0.9, power2=0.98)
        adamw(step, weight, weight.grad, paddle.zeros([2], "float64"), paddle.zeros([2], "float64"))
    np.testing.assert_allclose(weight.numpy(), [1 - 0.001 - 0.01, -2 + 0.002 + 0.01], rtol=1e-6)


@needs_bf16
@quick
@given(st.integers(1, 40), st.integers(1, 700))
def test_the_bf16_copy_is_the_rounded_weight(rows: int, columns: int) -> None:
    start, gradient = normal((rows, columns), (rows, columns), seed=(rows, columns))
    weight = paddle.to_tensor(start, stop_gradient=False)
    copy = bf16_copy(weight)
    weight.grad = paddle.to_tensor(gradient)
    with paddle.no_grad():
        moments = paddle.zeros_like(weight), paddle.zeros_like(weight)
        adamw(replace(FIRST, power1=0.9, power2=0.98), weight, weight.grad, *moments)
    assert np.array_equal(copy.astype("float32").numpy(), weight.astype("bfloat16").astype("float32").numpy())
    assert bf16_copy(weight) is copy


@quick
@given(st.lists(sizes, max_size=3))
def test_the_sum_of_squares_covers_all_elements(sizes: list[int]) -> None:
    values = normal(*[(size,) for size in sizes], seed=tuple(sizes))
    found = float(sum_of_squares([paddle.to_tensor(value) for value in values]))
    assert found == pytest.approx(sum((value.astype(np.float64) ** 2).sum() for value in values), rel=1e-6)


@pytest.mark.parametrize("non_finite", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("place", [0, 17, 16_384, 20_000])
def test_a_non_finite_gradient_makes_the_sum_of_squares_non_finite(non_finite: float, place: int) -> None:
    (value,) = normal((20_001,))
    value[place] = non_finite
    assert not np.isfinite(float(sum_of_squares([paddle.to_tensor(value), paddle.ones([3])])))


@pytest.mark.parametrize("value", [1e15, 1e-15])
def test_the_sum_of_squares_of_very_large_or_small_gradients_is_right(value: float) -> None:
    assert float(sum_of_squares([paddle.full([100_000], value)])) == pytest.approx(1e5 * value**2, rel=1e-5)

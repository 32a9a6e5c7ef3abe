"""A linear layer with an activation, against its definition in float64."""

from __future__ import annotations

from functools import partial

import numpy as np
import paddle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kernels.judging import (
    assert_close,
    assert_near,
    assert_only_frozen_lack_gradients,
    needs_bf16,
    needs_kernels,
    normal,
    quick,
    rounded,
    run,
)

from ernie.kernels.linear import linear, reference
from ernie.kernels.precision import batch_invariant, precision
from ernie.kernels.types import Activation
from ernie.kernels.vocabulary import vocabulary_logits

ACTIVATIONS: list[Activation] = ["none", "gelu", "relu"]
sizes = st.one_of(st.integers(1, 9), st.integers(1, 200))


def random_inputs(T: int, D: int, E: int) -> tuple[list[np.ndarray], np.ndarray]:
    """x, weight and bias, and an upstream gradient."""
    *values, upstream = normal((T, D), (D, E), (E,), (T, E), seed=(T, D, E))
    return values, upstream


@quick
@given(sizes, sizes, sizes, st.sampled_from(ACTIVATIONS))
def test_linear_equals_its_definition_forward_and_backward(T: int, D: int, E: int, activation: Activation) -> None:
    values, upstream = random_inputs(T, D, E)
    kernel = partial(linear, activation=activation)
    assert_close(run(kernel, values, upstream), run(kernel, values, upstream, "float64"))


@needs_bf16
@quick
@given(sizes, sizes, st.integers(8, 200), st.sampled_from(ACTIVATIONS))
def test_linear_in_bfloat16_is_near_its_definition(T: int, D: int, E: int, activation: Activation) -> None:
    values, upstream = random_inputs(T + 5, D + 5, E)
    if activation == "relu":
        values = rounded(values)
    kernel = partial(linear, activation=activation)
    with precision("bf16"):
        found = run(kernel, values, upstream)
    assert_near(found, run(kernel, values, upstream, "float64"))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("frozen", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
def test_frozen_inputs_get_no_gradient_and_others_are_unchanged(
    frozen: tuple[int, ...], activation: Activation
) -> None:
    values, upstream = random_inputs(5, 3, 4)
    kernel = partial(linear, activation=activation)
    with_frozen, without = run(kernel, values, upstream, frozen=frozen), run(kernel, values, upstream)
    assert_only_frozen_lack_gradients(with_frozen, without, frozen)


def test_gelu_is_exact_even_far_from_zero() -> None:
    x = np.concatenate([np.linspace(-12, 12, 999), [-1e4, -100, 0, 100, 1e4]]).astype(np.float32)[:, None]
    values = [x, np.ones((1, 1), np.float32), np.zeros(1, np.float32)]
    kernel = partial(linear, activation="gelu")
    for actual, expected in zip(run(kernel, values, 1.0)[:2], run(kernel, values, 1.0, "float64")[:2], strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-6)  # type: ignore[arg-type]


@needs_kernels  # Paddle's own relu turns NaN into zero
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_nan_is_propagated(activation: Activation) -> None:
    x = paddle.to_tensor([[1.0], [np.nan], [-1.0]])
    found = linear(x, paddle.ones([1, 3]), paddle.zeros([3]), activation).numpy()
    assert np.isnan(found).any(1).tolist() == [False, True, False]


def test_the_upstream_gradient_is_not_modified() -> None:
    """Paddle may pass one gradient to several layers."""
    values, upstream = random_inputs(5, 3, 4)
    x, weight, bias = (paddle.to_tensor(value, stop_gradient=False) for value in values)
    out, given_gradient = linear(x, weight, bias, "gelu"), paddle.to_tensor(upstream)
    paddle.autograd.backward([out], [given_gradient])
    assert np.array_equal(given_gradient.numpy(), upstream)


def test_the_definition_of_relu_is_zero_below_zero() -> None:
    values = [np.array([[-2.0, 3.0]]), np.eye(2), np.zeros(2)]
    assert reference(*map(paddle.to_tensor, values), "relu").numpy().tolist() == [[0, 3]]


@needs_kernels
@pytest.mark.parametrize("name", ["fp32", pytest.param("bf16", marks=needs_bf16), "int8"])
@quick
@given(st.integers(1, 40), st.integers(1, 40), sizes, sizes)
def test_a_row_does_not_depend_on_the_rows_beside_it_where_that_is_promised(
    name: str, before: int, after: int, D: int, E: int
) -> None:
    (x, weight, bias), _ = random_inputs(before + after + 3, D, E)
    weight, bias = paddle.to_tensor(weight), paddle.to_tensor(bias)
    table = paddle.to_tensor(weight.numpy().T.copy())
    with paddle.no_grad(), precision(name), batch_invariant():
        alone, among = (paddle.to_tensor(rows) for rows in (x[before : before + 3], x))
        for kernel in (
            lambda rows: linear(rows, weight, bias, "gelu"),
            lambda rows: vocabulary_logits(rows, table, bias),
        ):
            np.testing.assert_array_equal(kernel(alone).numpy(), kernel(among).numpy()[before : before + 3])


@needs_kernels
@pytest.mark.parametrize("name", ["fp32", pytest.param("bf16", marks=needs_bf16), "int8"])
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 17])
def test_wide_rows_are_what_they_are_among_many_and_right(name: str, rows: int) -> None:
    (x, weight, bias), _ = random_inputs(200, 1100, 139)
    weight, bias = paddle.to_tensor(weight), paddle.to_tensor(bias)
    table = paddle.to_tensor(weight.numpy().T.copy())
    with paddle.no_grad(), precision(name), batch_invariant():
        alone, among = paddle.to_tensor(x[:rows]), paddle.to_tensor(x)
        for kernel in (lambda given: linear(given, weight, bias), lambda given: vocabulary_logits(given, table, bias)):
            found = kernel(among).numpy()
            np.testing.assert_array_equal(kernel(alone).numpy(), found[:rows])
            if name == "fp32":
                exact = x.astype(np.float64) @ weight.numpy().astype(np.float64) + bias.numpy()
                np.testing.assert_allclose(found, exact, rtol=1e-5, atol=1e-4 * np.abs(exact).mean())

"""Dropout, residual and LayerNorm in one, against their definition in 64 bits."""

from __future__ import annotations

from functools import partial

import numpy as np
import paddle.nn.functional as F
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging import assert_close, assert_only_the_frozen_are_left_out, needs_kernels, normal, quick, run
from paddle import Tensor
from philox import ALONE, seeded

from ernie.kernels.norm import add_norm

sizes = st.tuples(st.integers(1, 150), st.one_of(st.integers(9, 20), st.integers(9, 300)))


def drawn(T: int, D: int, scale: float = 1.0) -> tuple[list[np.ndarray], np.ndarray]:
    """Residual, x, gain and offset, and an upstream gradient."""
    residual, x, gain, offset, upstream = normal((T, D), (T, D), (D,), (D,), (T, D), seed=(T, D))
    return [residual * scale, x * scale, 1 + gain / 2, offset], upstream


@quick
@given(sizes, st.sampled_from([1.0, 100.0]))
def test_add_norm_equals_its_definition_forward_and_backward(size: tuple[int, int], scale: float) -> None:
    values, upstream = drawn(*size, scale)
    kernel = partial(add_norm, epsilon=1e-5)
    assert_close(run(kernel, values, upstream), run(kernel, values, upstream, "float64"))


@pytest.mark.parametrize("width", range(1, 9))
def test_rows_of_few_columns_are_normalized_like_others(width: int) -> None:
    values, upstream = drawn(5, width)
    values[0][:] = np.arange(width) * 3  # columns that happen to be alike would leave little of 32 bits
    kernel = partial(add_norm, epsilon=1e-5)
    assert_close(run(kernel, values, upstream), run(kernel, values, upstream, "float64"), 1e-4)


@needs_kernels
@quick
@given(sizes, st.sampled_from([0.1, 0.5]), st.integers(0, 99))
def test_with_dropout_the_mask_is_the_generators(size: tuple[int, int], dropout: float, seed: int) -> None:
    values, upstream = drawn(*size)
    mask = seeded(seed)(dropout, site=ALONE, rows=size[0], columns=size[1])

    def defined(residual: Tensor, x: Tensor, gain: Tensor, offset: Tensor) -> Tensor:
        return F.layer_norm(residual + x * mask, [size[1]], gain, offset, 1e-5)

    found = run(partial(add_norm, epsilon=1e-5, dropout=dropout), values, upstream)
    assert_close(found, run(defined, values, upstream, "float64"))


@pytest.mark.parametrize("frozen", [(0,), (1,), (2,), (3,), (2, 3), (0, 2)])
def test_what_is_frozen_gets_no_gradient_and_the_rest_the_same(frozen: tuple[int, ...]) -> None:
    values, upstream = drawn(5, 7)
    kernel = partial(add_norm, epsilon=1e-5)
    some, every = run(kernel, values, upstream, frozen=frozen), run(kernel, values, upstream)
    assert_only_the_frozen_are_left_out(some, every, frozen)


def test_a_row_without_any_spread_becomes_the_offset() -> None:
    values, _ = drawn(3, 17)
    values[0][:], values[1][:] = 3.0, -1.0
    (out, *_) = run(partial(add_norm, epsilon=1e-5), values, 1.0)
    np.testing.assert_allclose(out, np.tile(values[3], (3, 1)), rtol=1e-5)  # type: ignore[arg-type]

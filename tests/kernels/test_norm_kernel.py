"""Fused dropout, residual and LayerNorm against their definition in float64."""

from __future__ import annotations

from functools import partial

import numpy as np
import paddle.nn.functional as F
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paddle import Tensor
from support.kernels.judging import assert_close, assert_only_frozen_lack_gradients, needs_kernels, normal, quick, run
from support.kernels.philox import STANDALONE, seeded_mask

from ernie.kernels.norm import add_norm

sizes = st.tuples(st.integers(1, 150), st.one_of(st.integers(9, 20), st.integers(9, 300)))


def random_inputs(T: int, D: int, scale: float = 1.0) -> tuple[list[np.ndarray], np.ndarray]:
    """Residual, x, gain and offset, and an upstream gradient."""
    residual, x, gain, offset, upstream = normal((T, D), (T, D), (D,), (D,), (T, D), seed=(T, D))
    return [residual * scale, x * scale, 1 + gain / 2, offset], upstream


@quick
@given(sizes, st.sampled_from([1.0, 100.0]))
def test_add_norm_equals_its_definition_forward_and_backward(size: tuple[int, int], scale: float) -> None:
    values, upstream = random_inputs(*size, scale)
    kernel = partial(add_norm, epsilon=1e-5)
    assert_close(run(kernel, values, upstream), run(kernel, values, upstream, "float64"))


@pytest.mark.parametrize("width", range(1, 9))
def test_narrow_rows_are_normalized_correctly(width: int) -> None:
    values, upstream = random_inputs(5, width)
    values[0][:] = np.arange(width) * 3  # nearly equal columns would leave few significant bits
    kernel = partial(add_norm, epsilon=1e-5)
    assert_close(run(kernel, values, upstream), run(kernel, values, upstream, "float64"), 1e-4)


@needs_kernels
@quick
@given(sizes, st.sampled_from([0.1, 0.5]), st.integers(0, 99))
def test_the_dropout_mask_is_that_of_the_generator(size: tuple[int, int], dropout: float, seed: int) -> None:
    values, upstream = random_inputs(*size)
    mask = seeded_mask(seed)(dropout, site=STANDALONE, rows=size[0], columns=size[1])

    def defined(residual: Tensor, x: Tensor, gain: Tensor, offset: Tensor) -> Tensor:
        return F.layer_norm(residual + x * mask, [size[1]], gain, offset, 1e-5)

    found = run(partial(add_norm, epsilon=1e-5, dropout=dropout), values, upstream)
    assert_close(found, run(defined, values, upstream, "float64"))


@pytest.mark.parametrize("frozen", [(0,), (1,), (2,), (3,), (2, 3), (0, 2)])
def test_frozen_inputs_get_no_gradient_and_others_are_unchanged(frozen: tuple[int, ...]) -> None:
    values, upstream = random_inputs(5, 7)
    kernel = partial(add_norm, epsilon=1e-5)
    with_frozen, without = run(kernel, values, upstream, frozen=frozen), run(kernel, values, upstream)
    assert_only_frozen_lack_gradients(with_frozen, without, frozen)


def test_a_constant_row_becomes_the_offset() -> None:
    values, _ = random_inputs(3, 17)
    values[0][:], values[1][:] = 3.0, -1.0
    (out, *_) = run(partial(add_norm, epsilon=1e-5), values, 1.0)
    np.testing.assert_allclose(out, np.tile(values[3], (3, 1)), rtol=1e-5)  # type: ignore[arg-type]

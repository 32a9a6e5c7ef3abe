"""Matrices that follow from learned factors."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kernels.judging import needs_bf16, normal, quick

from ernie.errors import UserError
from ernie.kernels.cpu.copies import bf16_copy
from ernie.kernels.low_rank import reference, set_from_factors
from ernie.kernels.types import Factors


def tensors(D: int, E: int, rank: int) -> list[paddle.Tensor]:
    """A weight, pretrained values, and both factors."""
    return [paddle.to_tensor(x) for x in normal((D, E), (D, E), (D, rank), (rank, E), seed=(D, E, rank))]


@quick
@given(st.integers(1, 70), st.integers(1, 300), st.integers(1, 40))
def test_a_weight_is_set_to_its_pretrained_values_plus_the_product_of_its_factors(D: int, E: int, rank: int) -> None:
    weight, pretrained, a, b = tensors(D, E, rank)
    wanted = pretrained.numpy().astype(np.float64) + 0.3 * a.numpy().astype(np.float64) @ b.numpy()
    for kernel in (set_from_factors, reference):
        weight.set_value(paddle.zeros([D, E]))
        kernel(weight, pretrained, Factors(a, b, 0.3))
        np.testing.assert_allclose(weight.numpy(), wanted, rtol=0, atol=2e-6 * rank)


@needs_bf16
def test_its_copy_in_bfloat16_is_updated_in_place() -> None:
    weight, pretrained, a, b = tensors(33, 65, 3)
    copy = bf16_copy(weight)
    set_from_factors(weight, pretrained, Factors(a, b, 2.0))
    assert bf16_copy(weight).data_ptr() == copy.data_ptr()
    np.testing.assert_array_equal(copy.astype("float32").numpy(), weight.astype("bfloat16").astype("float32").numpy())


def test_factors_that_do_not_fit_are_refused_by_name() -> None:
    weight, pretrained, a, _ = tensors(4, 6, 2)
    with pytest.raises(UserError, match=r"b_rE has the shape \(3, 6\): expected \(r = 2, E = 6\)"):
        set_from_factors(weight, pretrained, Factors(a, paddle.zeros([3, 6]), 1.0))

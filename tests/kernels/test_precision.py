"""Precisions: what was computed in one of them is read as the numbers that it is."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from ernie.kernels.precision import to_numpy


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16"])
def test_what_a_tensor_holds_is_float32_whichever_precision_it_was_computed_in(kind: str) -> None:
    found = to_numpy(paddle.to_tensor([-1.5, 0.25, 3.0]).astype(kind))
    assert found.dtype == np.float32
    assert found.tolist() == [-1.5, 0.25, 3.0]

"""Precisions: results of any precision convert to NumPy."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from ernie.kernels.precision import current, precision, resolve, to_numpy


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float16"])
def test_tensors_of_any_precision_convert_to_float32_arrays(kind: str) -> None:
    found = to_numpy(paddle.to_tensor([-1.5, 0.25, 3.0]).astype(kind))
    assert found.dtype == np.float32
    assert found.tolist() == [-1.5, 0.25, 3.0]


def test_auto_is_the_best_precision_of_the_machine_and_ends_with_its_context() -> None:
    with precision("auto"):
        assert current() == resolve("auto")
    assert current() == "fp32"

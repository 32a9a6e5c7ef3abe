"""Shared by the CPU implementations: matrix products, shapes as C structures, seeds."""

from __future__ import annotations

import ctypes
import math

import numpy as np
import paddle
from paddle import Tensor

from ernie.data.batch import Layout
from ernie.kernels.cpu.library import AttentionShape, Library, library
from ernie.kernels.cpu.pool import empty
from ernie.kernels.mask import Mask
from ernie.kernels.precision import is_batch_invariant

# Rows of a block of a batch-invariant product in bfloat16.  oneDNN sums all rows of such a block alike; of eight rows
# it would sum the last two in another order.
_INVARIANT_ROWS = 16


def loaded() -> Library:
    """Return the library, which the caller knows to be available."""
    found = library()
    assert found is not None
    return found


def byref(structure: object) -> object:
    """Return a pointer to a structure, as an argument of a call."""
    return ctypes.byref(structure)  # type: ignore[arg-type]


def count(x: Tensor) -> int:
    """Return the number of elements of a tensor."""
    return math.prod(x.shape)  # Paddle's x.size takes ten times as long


def seed_of(dropout: float) -> int:
    """Draw a seed for this call from Paddle's generator, whose state recomputation restores; 0 without dropout."""
    return int(paddle.framework.core.default_cpu_generator().random()) if dropout else 0


class Shape:
    """An AttentionShape and the arrays that it points to; `rows` are the tokens that are queries, if not all are."""

    def __init__(
        self, layout: Layout, keys: Layout, heads: int, width: int, mask: Mask | None, rows: np.ndarray | None = None
    ):
        query_offsets = layout.offsets if rows is None else np.searchsorted(rows, layout.offsets)
        arrays = [query_offsets, keys.offsets]
        if mask is not None:
            arrays += [mask.first, mask.last] if rows is None else [mask.first[rows], mask.last[rows]]
        self._arrays = [np.ascontiguousarray(array, np.int32) for array in arrays]
        addresses = [array.ctypes.data for array in self._arrays] + [None] * (4 - len(arrays))
        size = width // heads
        self.structure = AttentionShape(layout.sequences, heads, size, *addresses, 1.0 / math.sqrt(size))


def product(
    left: Tensor,
    right: Tensor,
    bias: Tensor | None = None,
    *,
    transpose_left: bool = False,
    transpose_right: bool = False,
) -> Tensor:
    """Return the product of two matrices, either of them transposed, plus a bias, in float32.

    Within `batch_invariant` each row is computed as if it were alone; in bfloat16 in blocks of _INVARIANT_ROWS rows,
    the last one filled with zeros.
    """
    M, K = left.shape[::-1] if transpose_left else left.shape
    N = right.shape[0] if transpose_right else right.shape[1]
    alone, is_low = is_batch_invariant() and not transpose_left, left.dtype == paddle.bfloat16
    padding = -M % _INVARIANT_ROWS if alone and is_low else 0
    if padding:
        left = paddle.concat([left, paddle.zeros([padding, K], left.dtype)])
    y = empty([M + padding, N])
    loaded().call(
        "product",
        int(is_low),
        *(M + padding, N, K),
        *(left.data_ptr(), left.shape[1], int(transpose_left)),
        *(right.data_ptr(), right.shape[1], int(transpose_right)),
        None if bias is None else bias.data_ptr(),
        *(y.data_ptr(), 0, N, 0, int(alone)),
    )
    return y[:M] if padding else y


def column_sum(x: Tensor) -> Tensor:
    """Return the sum over rows, in float32."""
    total = empty([x.shape[1]])
    loaded().call("column_sum", int(x.dtype == paddle.bfloat16), x.data_ptr(), x.shape[0], x.shape[1], total.data_ptr())
    return total


def to_bf16(x: Tensor) -> Tensor:
    """Convert a matrix to bfloat16."""
    y = empty(x.shape, paddle.bfloat16)
    loaded().call("convert", x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1])
    return y

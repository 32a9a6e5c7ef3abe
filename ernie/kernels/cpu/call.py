"""What the CPU bodies share: products, addresses of tensors, shapes as C structures, seeds."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import numpy as np
import paddle
from paddle import Tensor

from ernie.data.batch import Layout
from ernie.errors import UserError
from ernie.kernels.cpu.library import AttentionShape, Library, library
from ernie.kernels.cpu.room import empty
from ernie.kernels.mask import Mask

ACTIVATIONS = {"none": 0, "gelu": 1, "relu": 2}  # as in src/rows.h


def loaded() -> Library:
    """The library, where it is known to be there."""
    found = library()
    assert found is not None
    return found


def byref(structure: object) -> object:
    """A pointer to a structure, for a call."""
    return ctypes.byref(structure)  # type: ignore[arg-type]


def count(x: Tensor) -> int:
    """How many elements a tensor has."""
    return math.prod(x.shape)  # Paddle's x.size takes ten times as long


def seed_of(dropout: float) -> int:
    """A seed for this call, from Paddle's generator, whose state recomputation restores; 0 where none is needed."""
    return int(paddle.framework.core.default_cpu_generator().random()) if dropout else 0


def row_numbers(numbers: np.ndarray, rows: int, what: str) -> np.ndarray:
    """Integers as the kernels read them, 64 bits each.  Raises UserError where one is not the number of a row."""
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < rows:
        odd = numbers[(numbers < 0) | (numbers >= rows)][0]
        raise UserError(f"{what} {odd}: expected a number from 0 to {rows - 1}")
    return np.ascontiguousarray(numbers, np.int64)


def asked_rows(rows: np.ndarray | Sequence[int], tokens: int) -> np.ndarray:
    """The tokens asked for, as the kernels read them.  Raises UserError where they are none, or do not ascend."""
    if (np.diff(rows) <= 0).any():
        raise UserError("the tokens that are asked for: expected each one once, in ascending order")
    return row_numbers(np.asarray(rows), tokens, "token")


class Shape:
    """An AttentionShape and the arrays that it points to; `rows` are the queries where not all tokens ask."""

    def __init__(
        self, layout: Layout, keys: Layout, heads: int, width: int, mask: Mask | None, rows: np.ndarray | None = None
    ):
        asked = layout.offsets if rows is None else np.searchsorted(rows, layout.offsets)
        kept = [asked, keys.offsets]
        if mask is not None:
            kept += [mask.first, mask.last] if rows is None else [mask.first[rows], mask.last[rows]]
        self._kept = [np.ascontiguousarray(array, np.int32) for array in kept]
        addresses = [array.ctypes.data for array in self._kept] + [None] * (4 - len(kept))
        size = width // heads
        self.structure = AttentionShape(layout.sequences, heads, size, *addresses, 1.0 / math.sqrt(size))


def product(
    left: Tensor, right: Tensor, bias: Tensor | None = None, *, turn_left: bool = False, turn_right: bool = False
) -> Tensor:
    """The product of two matrices, either of them transposed, plus a bias; float32."""
    M, K = left.shape[::-1] if turn_left else left.shape
    N = right.shape[0] if turn_right else right.shape[1]
    y = empty([M, N])
    loaded().call(
        "product",
        int(left.dtype == paddle.bfloat16),
        *(M, N, K),
        *(left.data_ptr(), left.shape[1], int(turn_left)),
        *(right.data_ptr(), right.shape[1], int(turn_right)),
        None if bias is None else bias.data_ptr(),
        *(y.data_ptr(), 0, N, 0),
    )
    return y


def column_sum(x: Tensor) -> Tensor:
    """The sum over rows, float32."""
    total = empty([x.shape[1]])
    loaded().call("column_sum", int(x.dtype == paddle.bfloat16), x.data_ptr(), x.shape[0], x.shape[1], total.data_ptr())
    return total


def low(x: Tensor) -> Tensor:
    """A matrix in bfloat16."""
    y = empty(x.shape, paddle.bfloat16)
    loaded().call("convert", x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1])
    return y

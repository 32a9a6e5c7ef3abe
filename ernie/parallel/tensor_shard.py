"""Parameters that tensor parallelism splits over processes, as marked by fleet's layers."""

from __future__ import annotations

import math

import numpy as np
from paddle import Tensor

from ernie.model.weights import StoredArray


def is_split(parameter: Tensor) -> bool:
    """Whether a parameter is one process's part of a split parameter, rather than a full copy."""
    return bool(getattr(parameter, "is_distributed", False))


def local_part(whole: np.ndarray | StoredArray, of: Tensor, rank: int) -> np.ndarray:
    """Return the part that belongs to `rank` of the full values of a split parameter, or of its moment."""
    size = of.shape[of.split_axis]
    return np.ascontiguousarray(whole[(slice(None),) * of.split_axis + (slice(rank * size, (rank + 1) * size),)])


def flat_part(whole: np.ndarray | StoredArray, start: int, end: int) -> np.ndarray:
    """Return the values `start` to `end` of all values in a row, with zeros where there are no more."""
    row = math.prod(whole.shape[1:])
    first, last = (min(number, whole.shape[0]) for number in (start // row, -(-end // row)))
    rows = whole[first:last].reshape(-1)[start - first * row : end - first * row]
    part = np.zeros(end - start, rows.dtype)
    part[: rows.size] = rows
    return part


def full_shape(of: Tensor, ranks: int) -> list[int]:
    """Return the full shape of a parameter, or of its moment, that may be split over `ranks` processes."""
    return [size * ranks if is_split(of) and axis == of.split_axis else size for axis, size in enumerate(of.shape)]

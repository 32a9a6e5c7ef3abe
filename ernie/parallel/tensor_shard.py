"""Parameters that tensor parallelism splits over processes, as marked by fleet's layers."""

from __future__ import annotations

import numpy as np
from paddle import Tensor


def is_split(parameter: Tensor) -> bool:
    """Whether a parameter is one process's part of a split parameter, rather than a full copy."""
    return bool(getattr(parameter, "is_distributed", False))


def local_part(whole: np.ndarray, of: Tensor, rank: int) -> np.ndarray:
    """Return the part that belongs to `rank` of the full values of a split parameter, or of its moment."""
    size = of.shape[of.split_axis]
    return whole.take(range(rank * size, (rank + 1) * size), of.split_axis)


def full_shape(of: Tensor, ranks: int) -> list[int]:
    """Return the full shape of a parameter, or of its moment, that may be split over `ranks` processes."""
    return [size * ranks if is_split(of) and axis == of.split_axis else size for axis, size in enumerate(of.shape)]

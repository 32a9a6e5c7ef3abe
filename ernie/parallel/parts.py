"""Parameters of which each process has a part, as fleet's layers mark them."""

from __future__ import annotations

import numpy as np
from paddle import Tensor


def is_part(parameter: Tensor) -> bool:
    """Whether a parameter is a part of one that is spread over processes, and no copy."""
    return bool(getattr(parameter, "is_distributed", False))


def cut(whole: np.ndarray, of: Tensor, rank: int) -> np.ndarray:
    """What of a parameter's whole values, or of a moment's, is that of process `rank` among those that share it."""
    size = of.shape[of.split_axis]
    return whole.take(range(rank * size, (rank + 1) * size), of.split_axis)


def whole_shape(of: Tensor, ranks: int) -> list[int]:
    """The shape of a parameter, or of a moment, that so many processes may share, as one process would have it."""
    return [size * ranks if is_part(of) and axis == of.split_axis else size for axis, size in enumerate(of.shape)]

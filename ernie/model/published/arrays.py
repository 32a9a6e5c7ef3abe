"""What the readers of binary files share: the shape of an array, and bfloat16, which NumPy lacks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from ernie.errors import UserError


def shaped(flat: np.ndarray, shape: Sequence[int], path: Path, order: Literal["C", "F"] = "C") -> np.ndarray:
    """Return values in the shape that `path` gives them.  Raises UserError for a shape that no array can have."""
    try:
        return flat.reshape(shape, order=order)
    except (ValueError, OverflowError):  # also for large sizes beside one of 0
        raise UserError(f"{path}: is damaged: an array of {len(flat):,} values cannot be {list(shape)}") from None


def bfloat16_to_float32(bits: np.ndarray) -> np.ndarray:
    """Convert bfloat16 values, given as uint16 bit patterns, to float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)

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


GROWTH = 4  # how many times a file's size its tensors may have together: tied ones lie in it once


def check_growth(size: int, file_size: int, path: Path) -> None:
    """Raise UserError if tensors of `size` bytes are more than a few times as large as the file that they lie in."""
    if size > GROWTH * file_size + (1 << 20):
        raise UserError(
            f"{path}: has {file_size:,} bytes, and its tensors would have {size:,}, more than {GROWTH} times as many; "
            "it is no file of weights"
        )


def bfloat16_to_float32(bits: np.ndarray) -> np.ndarray:
    """Convert bfloat16 values, given as uint16 bit patterns, to float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)

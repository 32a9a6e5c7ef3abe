"""bfloat16, which NumPy does not have: the upper half of a float32."""

from __future__ import annotations

import numpy as np


def widened(bits: np.ndarray) -> np.ndarray:
    """The float32 values of bfloat16 ones, given as unsigned integers of 16 bits."""
    return (bits.astype(np.uint32) << 16).view(np.float32)

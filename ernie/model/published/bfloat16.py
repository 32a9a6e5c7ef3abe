"""Conversion of bfloat16, which NumPy lacks: the upper half of a float32."""

from __future__ import annotations

import numpy as np


def bfloat16_to_float32(bits: np.ndarray) -> np.ndarray:
    """Convert bfloat16 values, given as uint16 bit patterns, to float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)

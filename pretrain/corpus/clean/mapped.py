"""Rows in files, mapped into memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def mapped(path: Path, dtype: np.dtype[Any]) -> np.ndarray:
    """Return the rows in a file, mapped into memory."""
    return np.memmap(path, dtype, "r") if path.stat().st_size else np.zeros(0, dtype)  # which cannot be mapped


def zeros(path: Path, dtype: np.dtype[Any], size: int) -> np.ndarray:
    """Return an array (size,) of zeros in a new file, mapped into memory."""
    return np.memmap(path, dtype, "w+", shape=size) if size else np.zeros(0, dtype)

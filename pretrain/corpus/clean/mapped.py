"""Rows in files, mapped into memory or read one by one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np


def mapped(path: Path, dtype: np.dtype[Any]) -> np.ndarray:
    """Return the rows in a file, mapped into memory."""
    return np.memmap(path, dtype, "r") if path.stat().st_size else np.zeros(0, dtype)  # which cannot be mapped


def zeros(path: Path, dtype: np.dtype[Any], size: int) -> np.ndarray:
    """Return an array (size,) of zeros in a new file, mapped into memory."""
    return np.memmap(path, dtype, "w+", shape=size) if size else np.zeros(0, dtype)


def read_at(path: Path, dtype: np.dtype[Any], positions: np.ndarray) -> np.ndarray:
    """Return the rows at positions (k,) anywhere, read one by one: a mapping would bring much around them."""
    size = dtype.itemsize
    with path.open("rb", buffering=0) as file:
        read = [os.pread(file.fileno(), size, size * position) for position in positions.tolist()]
    return np.frombuffer(b"".join(read), dtype)

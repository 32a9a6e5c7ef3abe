"""CPU bodies of the kernels: C++ in `src`, built by ernie.kernels.build, called through `library`."""

from __future__ import annotations

import paddle
from paddle import Tensor

from ernie.kernels.cpu import (
    adamw,
    attention,
    dilated,
    embedding,
    layer,
    linear,
    norm,
    recurrent,
    sampling,
    stack,
    vocabulary,
)
from ernie.kernels.cpu.library import library

__all__ = [
    "adamw",
    "attention",
    "dilated",
    "embedding",
    "layer",
    "linear",
    "norm",
    "recurrent",
    "sampling",
    "serves",
    "stack",
    "vocabulary",
]


def serves(x: Tensor) -> bool:
    """Whether the kernels here can take this tensor: float32, on a CPU that there is a library for."""
    return x.dtype == paddle.float32 and x.place.is_cpu_place() and library() is not None

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


_TYPES = (paddle.float32,)


def serves(x: Tensor, *others: Tensor) -> bool:
    """Whether the kernels here can take tensors, all of them where `x` is: float32, on a CPU with a library for it."""
    # `in` sees that it is the same object; Paddle's own == takes four times as long.
    if x.dtype not in _TYPES or not x.place.is_cpu_place() or library() is None:
        return False
    return all(other.dtype in _TYPES for other in others)

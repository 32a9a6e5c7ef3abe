"""CPU implementations of the kernels: C++ in `src`, built by ernie.kernels.build and called through `library`."""

from __future__ import annotations

import paddle
from paddle import Tensor

from ernie.kernels.cpu import (
    adamw,
    attention,
    dilated,
    embedding,
    gaussian,
    layer,
    linear,
    norm,
    recurrent,
    runs,
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
    "gaussian",
    "layer",
    "linear",
    "norm",
    "recurrent",
    "runs",
    "sampling",
    "stack",
    "supports",
    "vocabulary",
]


_TYPES = (paddle.float32,)


def supports(x: Tensor, *others: Tensor) -> bool:
    """Whether the C++ can take these tensors, all on one device: contiguous float32 on a CPU that has a library.

    Paddle makes views with strides where FLAGS_use_stride_kernel is set, which this library turns off.
    """
    # `in` compares identity first; Paddle's own == takes four times as long.
    if x.dtype not in _TYPES or not x.place.is_cpu_place() or library() is None:
        return False
    return x.is_contiguous() and all(other.dtype in _TYPES and other.is_contiguous() for other in others)

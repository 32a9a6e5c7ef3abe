"""Which body of a kernel computes: the one place where that is decided."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from paddle import Tensor

from ernie.kernels.cpu import serves

Body = TypeVar("Body", bound=Callable[..., object])


def choose(x: Tensor, reference: Body, on_cpu: Body, on_gpu: Body) -> Body:
    """The body for a tensor: C++ for float32 on a CPU, Paddle's fused operators on a GPU, otherwise the reference."""
    if serves(x):
        return on_cpu
    return on_gpu if x.place.is_gpu_place() else reference

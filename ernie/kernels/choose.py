"""Which body of a kernel computes: the one place where that is decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from paddle import Tensor

from ernie.kernels.cpu import serves

Body = TypeVar("Body", bound=Callable[..., object])


def choose(tensors: Sequence[Tensor], reference: Body, on_cpu: Body, on_gpu: Body) -> Body:
    """The body for tensors, the first of which says where they are.

    C++ for float32 on a CPU, Paddle's fused operators on a GPU, otherwise the reference.
    """
    if serves(*tensors):
        return on_cpu
    return on_gpu if tensors[0].place.is_gpu_place() else reference

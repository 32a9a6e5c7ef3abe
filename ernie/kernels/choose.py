"""Which body of a kernel computes: the one place where that is decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import paddle
from paddle import Tensor

from ernie.errors import UserError
from ernie.kernels.cpu import serves

Body = TypeVar("Body", bound=Callable[..., object])

_HALVES = (paddle.float16, paddle.bfloat16)


def choose(tensors: Sequence[Tensor], reference: Body, on_cpu: Body, on_gpu: Body) -> Body:
    """The body for tensors, the first of which says where they are.

    C++ for float32 on a CPU, Paddle's fused operators on a GPU, otherwise the reference.  Raises UserError for tensors
    in half precision on a CPU, for which Paddle has no operators.
    """
    if serves(*tensors):
        return on_cpu
    if tensors[0].place.is_gpu_place():
        return on_gpu
    for tensor in tensors:
        if tensor.dtype in _HALVES:
            raise UserError(
                f"weights of type {tensor.dtype.name.lower()} cannot be computed with on a CPU. Keep them in float32, "
                "which model.float() makes them again; `with ernie.kernels.precision.computing('auto'):` computes in "
                "bfloat16 where the processor does"
            )
    return reference

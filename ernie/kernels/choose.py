"""Choose the implementation of a kernel: the only place where that is decided."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import paddle
from paddle import Tensor

from ernie.errors import UserError
from ernie.kernels.cpu import supports

Implementation = TypeVar("Implementation", bound=Callable[..., object])

_HALVES = (paddle.float16, paddle.bfloat16)


def choose(
    tensors: Sequence[Tensor], reference: Implementation, on_cpu: Implementation, on_gpu: Implementation
) -> Implementation:
    """Return the implementation to use for these tensors; the first one determines the device.

    C++ for float32 on a CPU, Paddle's fused operators on a GPU, the reference otherwise.  Raises UserError for tensors
    in half precision on a CPU, for which Paddle has no operators.
    """
    if supports(*tensors):
        return on_cpu
    if tensors[0].place.is_gpu_place():
        return on_gpu
    for tensor in tensors:
        if tensor.dtype in _HALVES:
            raise UserError(
                f"weights of type {tensor.dtype.name.lower()} cannot be used on a CPU. Convert them back to float32 "
                "with model.float(); `with ernie.precision('auto'):` computes in bfloat16 where the "
                "processor supports it"
            )
    return reference

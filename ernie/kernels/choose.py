"""Choose the body of a kernel: C++, Paddle's fused operators, or the reference.

A kernel chooses by `choose` or `choose_for_arrays`.  Two others ask `runs_in_cpp`: a cache, whether its keys can lie in
pages, and the optimizer, whether to update by our kernel or by Paddle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import paddle
from paddle import Tensor

from ernie.errors import UserError
from ernie.kernels.cpu.library import library

Implementation = TypeVar("Implementation", bound=Callable[..., object])

_CPP_TYPES = (paddle.float32,)
_HALVES = (paddle.float16, paddle.bfloat16)


def runs_in_cpp(x: Tensor, *others: Tensor) -> bool:
    """Whether the C++ bodies can take these tensors of one device: contiguous float32 on a CPU that has a library.

    Paddle makes views with strides where FLAGS_use_stride_kernel is set, which this library turns off.
    """
    # `in` compares identity first; Paddle's own == takes four times as long.
    if x.dtype not in _CPP_TYPES or not x.place.is_cpu_place() or library() is None:
        return False
    return x.is_contiguous() and all(other.dtype in _CPP_TYPES and other.is_contiguous() for other in others)


def choose(
    tensors: Sequence[Tensor],
    reference: Implementation,
    on_cpu: Implementation,
    on_gpu: Implementation | None = None,
    gpu_takes: Callable[[], bool] = lambda: True,
) -> Implementation:
    """Return the body to use for these tensors, the first of which determines the device.

    That is C++ for float32 on a CPU. On a GPU it is Paddle's fused operators, where there are any that take the
    arguments (`gpu_takes`).  Otherwise it is the reference.  Raises UserError for tensors in half precision on a CPU,
    for which Paddle has no operators.
    """
    if runs_in_cpp(*tensors):
        return on_cpu
    if tensors[0].place.is_gpu_place():
        return on_gpu if on_gpu is not None and gpu_takes() else reference
    for tensor in tensors:
        if tensor.dtype in _HALVES:
            raise UserError(
                f"weights of type {tensor.dtype.name.lower()} cannot be used on a CPU. Convert them back to float32 "
                "with model.float(); `with ernie.precision('auto'):` computes in bfloat16 where the processor supports "
                "it"
            )
    return reference


def choose_for_arrays(reference: Implementation, on_cpu: Implementation) -> Implementation:
    """Return the body to use for NumPy arrays: C++ where the processor has a library, else the reference."""
    return reference if library() is None else on_cpu

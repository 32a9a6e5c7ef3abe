"""CPU implementation of ernie.kernels.adamw."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_double

import paddle
from paddle import Tensor

from ernie.kernels.cpu.call import byref, count, loaded
from ernie.kernels.cpu.copies import copy_to_update, mark_current
from ernie.kernels.cpu.library import AdamW
from ernie.kernels.types import AdamStep


def adamw(step: AdamStep, weight: Tensor, gradient: Tensor, moment1: Tensor, moment2: Tensor) -> None:
    """As ernie.kernels.adamw.reference, in one pass over memory."""
    s = step
    corrections = 1 / (1 - s.power1), 1 / (1 - s.power2)
    settings = AdamW(s.lr, s.beta1, s.beta2, s.epsilon, s.weight_decay, *corrections, s.gradient_scale)
    copy = copy_to_update(weight)
    addresses = [x.data_ptr() for x in (weight, gradient, moment1, moment2)]
    copy_address = None if copy is None else copy.data_ptr()
    loaded().call("adamw", byref(settings), *addresses, copy_address, count(weight))
    mark_current(weight)


def sum_of_squares(tensors: Sequence[Tensor]) -> Tensor:
    """Return the sum of squares of all elements, summed in double precision."""
    total, part = 0.0, c_double()
    for tensor in tensors:
        loaded().call("squares", tensor.data_ptr(), count(tensor), byref(part))
        total += part.value
    return paddle.full([], total, "float64")

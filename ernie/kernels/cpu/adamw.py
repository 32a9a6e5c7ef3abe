"""CPU implementation of ernie.kernels.adamw."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_double

import numpy as np
import paddle
from paddle import Tensor

from ernie.kernels.cpu.call import byref, count, loaded
from ernie.kernels.cpu.copies import copy_to_update, mark_current
from ernie.kernels.cpu.library import IDLE_BLOCK, AdamW
from ernie.kernels.types import AdamStep


def adamw(step: AdamStep, weight: Tensor, gradient: Tensor, moment1: Tensor, moment2: Tensor) -> None:
    """As ernie.kernels.adamw.reference, in one pass over memory.

    Weights whose gradients have always been zero only decay: of them, moments are neither read nor written.
    """
    s = step
    corrections = 1 / (1 - s.power1), 1 / (1 - s.power2)
    settings = AdamW(s.lr, s.beta1, s.beta2, s.epsilon, s.weight_decay, *corrections, s.gradient_scale)
    copy = copy_to_update(weight)
    addresses = [x.data_ptr() for x in (weight, gradient, moment1, moment2)]
    copy_address = None if copy is None else copy.data_ptr()
    known = _known_moments(moment1, moment2)
    loaded().call("adamw", byref(settings), *addresses, copy_address, known.ctypes.data, count(weight))
    mark_current(weight)


def _known_moments(moment1: Tensor, moment2: Tensor) -> np.ndarray:
    """What the kernel knows of the moments' blocks, kept with the moments; nothing if anything else changed them."""
    state = [(moment.data_ptr(), moment.inplace_version) for moment in (moment1, moment2)]
    if getattr(moment1, "_known", (None, None))[0] != state:
        moment1._known = state, np.zeros(-(-count(moment1) // IDLE_BLOCK), np.uint8)
    return moment1._known[1]


def sum_of_squares(tensors: Sequence[Tensor]) -> Tensor:
    """Return the sum of squares of all elements, summed in double precision."""
    total, part = 0.0, c_double()
    for tensor in tensors:
        loaded().call("squares", tensor.data_ptr(), count(tensor), byref(part))
        total += part.value
    return paddle.full([], total, "float64")

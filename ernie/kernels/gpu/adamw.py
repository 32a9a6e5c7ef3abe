"""GPU implementation of ernie.kernels.adamw."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import paddle
from paddle import Tensor

from ernie.kernels.types import AdamStep


def adamw(step: AdamStep, weight: Tensor, gradient: Tensor, moment1: Tensor, moment2: Tensor) -> None:
    """As ernie.kernels.adamw.reference, by the operator of Paddle's own AdamW, which rounds 1 - beta^t to float32.

    It reads and writes 28 bytes for each weight.  A factor of the gradient takes 8 more, as the operator has none: the
    gradient is scaled in place.
    """
    s = step
    if s.gradient_scale != 1.0:
        gradient.scale_(s.gradient_scale)
    settings = (s.beta1, s.beta2, s.epsilon, 1.0, s.weight_decay, s.weight_decay != 0.0)
    state = (_rate(s.lr), moment1, moment2, None, *_powers(s.power1, s.power2), None, None)
    # Not lazy, as for sparse gradients; no lower-precision weights; powers that the caller counts; not AMSGrad.
    paddle._C_ops.adamw_(weight, gradient, *state, *settings, False, 1000, False, True, False)


def sum_of_squares(tensors: Sequence[Tensor]) -> Tensor:
    """As ernie.kernels.adamw.reference_sum_of_squares, in one operator for each tensor."""
    return paddle.concat([paddle._C_ops.squared_l2_norm(tensor) for tensor in tensors]).sum().astype("float64")


@lru_cache(maxsize=2)  # of all parameters of a step, or of a few groups of them
def _rate(lr: float) -> Tensor:
    return paddle.full([1], lr)


@lru_cache(maxsize=2)
def _powers(power1: float, power2: float) -> tuple[Tensor, Tensor]:
    """Return both powers on the host, where the operator takes them from without a copy."""
    first, second = (paddle.to_tensor([power], "float32", place=paddle.CPUPlace()) for power in (power1, power2))
    return first, second

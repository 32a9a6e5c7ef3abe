"""The update of one parameter, and the norm of all gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import paddle
from paddle import Tensor

from ernie.kernels import cpu
from ernie.kernels.choose import choose


@dataclass(frozen=True)
class AdamStep:
    """One step of AdamW for one parameter: its rate and decay, and beta1^t and beta2^t after this step."""

    rate: float
    decay: float
    beta1: float
    beta2: float
    epsilon: float
    power1: float
    power2: float
    gradient_scale: float = 1.0


def adamw(step: AdamStep, weight: Tensor, moment1: Tensor, moment2: Tensor) -> None:
    """Update a weight with its gradient, and the moments, in place.

    Loshchilov and Hutter (2019, arXiv 1711.05101), algorithm 2; a copy of lower precision that kernels keep of the
    weight is renewed with it.
    """
    body = choose((weight, moment1, moment2), reference, cpu.adamw.adamw, reference)
    body(step, weight, moment1, moment2)


def reference(step: AdamStep, weight: Tensor, moment1: Tensor, moment2: Tensor) -> None:
    """What a step is."""
    gradient = weight.grad * step.gradient_scale
    paddle.assign(step.beta1 * moment1 + (1 - step.beta1) * gradient, moment1)
    paddle.assign(step.beta2 * moment2 + (1 - step.beta2) * gradient * gradient, moment2)
    mean, square = moment1 / (1 - step.power1), moment2 / (1 - step.power2)
    updated = weight * (1 - step.rate * step.decay) - step.rate * mean / (square.sqrt() + step.epsilon)
    paddle.assign(updated, weight)


def sum_of_squares(tensors: Sequence[Tensor]) -> float:
    """The sum of the squares of all elements; not finite when any of them is not."""
    if not tensors:
        return 0.0
    if all(map(cpu.serves, tensors)):
        return cpu.adamw.sum_of_squares(tensors)
    return float(paddle.stack([(x * x).sum() for x in tensors]).sum())

"""The AdamW update of one parameter, and the sum of squares of all gradients."""

from __future__ import annotations

from collections.abc import Sequence

import paddle
from paddle import Tensor

from ernie.errors import UserError
from ernie.kernels import cpu, gpu
from ernie.kernels.choose import choose
from ernie.kernels.types import AdamStep


def adamw(step: AdamStep, weight: Tensor, gradient: Tensor, moment1: Tensor, moment2: Tensor) -> None:
    """Update a weight and both moments from a gradient, in place; the gradient may change.

    Loshchilov and Hutter (2019, arXiv 1711.05101), algorithm 2.  If the kernels keep a lower-precision copy of the
    weight, it is updated too.  Raises UserError if the shapes do not fit.
    """
    tensors = {"gradient": gradient, "moment1": moment1, "moment2": moment2}
    for name, tensor in tensors.items():
        if tensor.shape != weight.shape:
            raise UserError(f"{name} has the shape {tuple(tensor.shape)}: expected {tuple(weight.shape)}, the weight's")
    impl = choose((weight, *tensors.values()), reference, cpu.adamw.adamw, gpu.adamw.adamw)
    impl(step, weight, *tensors.values())


def reference(step: AdamStep, weight: Tensor, gradient: Tensor, moment1: Tensor, moment2: Tensor) -> None:
    """Reference implementation in plain Paddle."""
    gradient = gradient * step.gradient_scale
    paddle.assign(step.beta1 * moment1 + (1 - step.beta1) * gradient, moment1)
    paddle.assign(step.beta2 * moment2 + (1 - step.beta2) * gradient * gradient, moment2)
    mean, square = moment1 / (1 - step.power1), moment2 / (1 - step.power2)
    updated = weight * (1 - step.lr * step.weight_decay) - step.lr * mean / (square.sqrt() + step.epsilon)
    paddle.assign(updated, weight)


def sum_of_squares(tensors: Sequence[Tensor]) -> Tensor:
    """Return the sum of squares of all elements, a float64 number on the device; not finite if any element is not."""
    if not tensors:
        return paddle.zeros([], "float64")
    return choose(tensors, reference_sum_of_squares, cpu.adamw.sum_of_squares, gpu.adamw.sum_of_squares)(tensors)


def reference_sum_of_squares(tensors: Sequence[Tensor]) -> Tensor:
    """Reference implementation of `sum_of_squares` in plain Paddle."""
    return paddle.stack([(x * x).sum() for x in tensors]).sum().astype("float64")

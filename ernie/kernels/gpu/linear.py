"""GPU implementation of ernie.kernels.linear.  Legend: T rows, D and E widths."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import paddle
import paddle.nn.functional as F
from paddle import Tensor
from paddle.autograd import PyLayer
from paddle.base.framework import EagerParamBase
from paddle.incubate.nn.functional import fused_matmul_bias

from ernie.kernels.precision import as_given, cast, is_low

_kept: ContextVar[dict[tuple[int, ...], Tensor] | None] = ContextVar("kept", default=None)


@contextmanager
def constant_weights(enabled: bool = True) -> Iterator[None]:
    """Inside, no weight changes: the lower-precision copies that products take are made once and kept.

    That is worth it for the micro-batches of a step.  The copies take 2 bytes for each weight.
    """
    before = _kept.set({} if enabled else None)
    try:
        yield
    finally:
        _kept.reset(before)


def linear(x_TD: Tensor, weight_DE: Tensor, bias_E: Tensor, activation: str) -> Tensor:
    """As ernie.kernels.linear.reference, with a fused bias; computes and returns the active precision.

    The activation is a separate operator: fused into the matmul (`fused_linear_activation`), GELU would be the tanh
    approximation.
    """
    y_TE = side_by_side(x_TD, [weight_DE], [bias_E])
    return y_TE if activation == "none" else getattr(F, activation)(y_TE)


def side_by_side(x_TD: Tensor, weights: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """Return the outputs of several linear layers of the same input and width, (T, n E), by one product."""
    return _Linear.apply(x_TD, *weights, *biases)


class _Linear(PyLayer):
    """One product for several layers, and gradients in float32 of their float32 weights.

    Paddle's gradient of the fused operator leaves out a bias whose weight is frozen, and rounds gradients of weights to
    the active precision.
    """

    @staticmethod
    def forward(ctx, x, *parameters):  # type: ignore[no-untyped-def]
        layers = len(parameters) // 2
        weights, biases = parameters[:layers], parameters[layers:]
        low_TD, weight, bias = cast(x), in_precision(weights), in_precision(biases)
        ctx.save_for_backward(low_TD, weight)
        ctx.type, ctx.layers = x.dtype, layers
        ctx.learns = not x.stop_gradient, [not w.stop_gradient for w in weights], [not b.stop_gradient for b in biases]
        return fused_matmul_bias(low_TD, weight, bias)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        low_TD, weight = ctx.saved_tensor()
        x_learns, weights_learn, biases_learn = ctx.learns
        x_grad = paddle.matmul(grad, weight, transpose_y=True).astype(ctx.type) if x_learns else None
        with as_given():
            weight_grad, bias_grad = _parameter_gradients(low_TD, grad, any(weights_learn), any(biases_learn))
            weight_grads, bias_grads = _parts(weight_grad, ctx.layers), _parts(bias_grad, ctx.layers)
        learns, grads = [*weights_learn, *biases_learn], [*weight_grads, *bias_grads]
        return x_grad, *(each if learn else None for each, learn in zip(grads, learns, strict=True))


def _parameter_gradients(
    x_TD: Tensor, grad_TE: Tensor, of_weight: bool, of_bias: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients in float32 of a weight and a bias, as far as they are wanted."""
    if of_weight and is_low():
        # With sums in float32, in one pass, as in fleet's tensor parallelism (`mp_fused_linear_param_grad_add`).
        return paddle._C_ops.fused_linear_param_grad_add(x_TD, grad_TE, None, None, True, of_bias)
    weight_grad = paddle.matmul(x_TD, grad_TE, transpose_x=True) if of_weight else None
    return weight_grad, grad_TE.astype("float32").sum(0) if of_bias else None


def _parts(grad: Tensor | None, layers: int) -> Sequence[Tensor | None]:
    """Return the parts of a gradient that belong to the layers."""
    return [grad] * layers if grad is None or layers == 1 else paddle.split(grad, layers, axis=-1)


def in_precision(parameters: Sequence[Tensor]) -> Tensor:
    """Return the parameters of several layers side by side, in the active precision."""
    kept = _kept.get() if all(isinstance(each, EagerParamBase) for each in parameters) else None
    key = tuple(id(parameter) for parameter in parameters)
    if kept is not None and key in kept:
        return kept[key]
    joined = cast(parameters[0] if len(parameters) == 1 else paddle.concat(list(parameters), axis=-1))
    if kept is not None:
        kept[key] = joined
    return joined

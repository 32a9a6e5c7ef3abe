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


class Passes:
    """What the forward and backward passes of a step share: lower-precision copies of weights, and gradients.

    Copies are made once; they take 2 bytes for each weight.  Before a backward pass that others follow, `is_last` may
    be set to False: gradients of linear layers then wait here, where the products of the next pass add to them, and are
    given to the weights by the last one.  Paddle would add them in an operator for each weight.
    """

    def __init__(self) -> None:
        self.is_last = True
        self.copies: dict[tuple[int, ...], Tensor] = {}  # by the ids of parameters
        self.waiting: dict[tuple[int, ...], tuple[list[Tensor], tuple[Tensor, Tensor | None]]] = {}

    @paddle.no_grad()
    def finish(self) -> None:
        """Give weights the gradients that wait for layers that the last pass did not reach."""
        for parameters, grads in self.waiting.values():
            layers = len(parameters) // 2
            parts = [part for grad in grads for part in _parts(grad, layers)]
            for parameter, part in zip(parameters, parts, strict=True):
                if part is not None and not parameter.stop_gradient:
                    parameter.grad = part if parameter.grad is None else parameter.grad + part
        self.waiting.clear()


_passes: ContextVar[Passes | None] = ContextVar("passes", default=None)


@contextmanager
def constant_weights(enabled: bool = True) -> Iterator[Passes]:
    """Inside, which is for the micro-batches of a step, no weight changes."""
    made = Passes()
    before = _passes.set(made if enabled else None)
    try:
        yield made
    finally:
        _passes.reset(before)


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
        ctx.type, ctx.parameters = x.dtype, parameters
        ctx.learns = not x.stop_gradient, [not w.stop_gradient for w in weights], [not b.stop_gradient for b in biases]
        waits = is_low() and any(ctx.learns[1]) and _are_kept(parameters)
        ctx.passes = _passes.get() if waits else None
        return fused_matmul_bias(low_TD, weight, bias)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        low_TD, weight = ctx.saved_tensor()
        x_learns, weights_learn, biases_learn = ctx.learns
        x_grad = paddle.matmul(grad, weight, transpose_y=True).astype(ctx.type) if x_learns else None
        learns = [*weights_learn, *biases_learn]
        with as_given():
            grads = _parameter_gradients(low_TD, grad, any(weights_learn), any(biases_learn), ctx)
            if ctx.passes is not None and not ctx.passes.is_last:
                ctx.passes.waiting[_key(ctx.parameters)] = [*ctx.parameters], grads
                return x_grad, *[None] * len(learns)
            parts = [part for each in grads for part in _parts(each, len(weights_learn))]
        return x_grad, *(each if learn else None for each, learn in zip(parts, learns, strict=True))


def _parameter_gradients(  # type: ignore[no-untyped-def]
    x_TD: Tensor, grad_TE: Tensor, of_weight: bool, of_bias: bool, ctx
) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients in float32 of a weight and a bias, as far as they are wanted, with those that wait."""
    if of_weight and is_low():
        waiting = None if ctx.passes is None else ctx.passes.waiting.pop(_key(ctx.parameters), None)
        before = (None, None) if waiting is None else waiting[1]
        # With sums in float32, in one pass, as in fleet's tensor parallelism (`mp_fused_linear_param_grad_add`).
        weight_grad, bias_grad = paddle._C_ops.fused_linear_param_grad_add(x_TD, grad_TE, *before, True, of_bias)
        return weight_grad, bias_grad if of_bias else None  # which has no memory then, and is not None
    weight_grad = paddle.matmul(x_TD, grad_TE, transpose_x=True) if of_weight else None
    return weight_grad, grad_TE.astype("float32").sum(0) if of_bias else None


def _parts(grad: Tensor | None, layers: int) -> Sequence[Tensor | None]:
    """Return the parts of a gradient that belong to the layers."""
    return [grad] * layers if grad is None or layers == 1 else paddle.split(grad, layers, axis=-1)


def in_precision(parameters: Sequence[Tensor]) -> Tensor:
    """Return the parameters of several layers side by side, in the active precision."""
    passes = _passes.get() if _are_kept(parameters) else None
    if passes is not None and (copy := passes.copies.get(_key(parameters))) is not None:
        return copy
    joined = cast(parameters[0] if len(parameters) == 1 else paddle.concat(list(parameters), axis=-1))
    if passes is not None:
        passes.copies[_key(parameters)] = joined
    return joined


def _are_kept(parameters: Sequence[Tensor]) -> bool:
    """Whether these are parameters, and not tensors that are made for a single pass."""
    return all(isinstance(each, EagerParamBase) for each in parameters)


def _key(parameters: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple(map(id, parameters))

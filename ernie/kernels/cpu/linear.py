"""CPU implementation of ernie.kernels.linear.  Legend: T rows, D and E widths."""

from __future__ import annotations

import paddle
from paddle import Tensor
from paddle.autograd import PyLayer

from ernie.kernels.argument_checks import ACTIVATIONS
from ernie.kernels.cpu.call import column_sum, count, loaded, product, to_bf16
from ernie.kernels.cpu.copies import bf16_copy, invalidate
from ernie.kernels.cpu.pool import empty, empty_like
from ernie.kernels.precision import is_low


def linear(x_TD: Tensor, weight_DE: Tensor, bias_E: Tensor, activation: str) -> Tensor:
    """As ernie.kernels.linear.reference."""
    return _Linear.apply(x_TD, weight_DE, bias_E, ACTIVATIONS[activation])


class _Linear(PyLayer):
    @staticmethod
    def forward(ctx, x, weight, bias, activation: int):  # type: ignore[no-untyped-def]
        inputs, weights = (to_bf16(x), bf16_copy(weight)) if is_low() else (x, weight)
        preactivation_TE = product(inputs, weights, bias)
        ctx.save_for_backward(inputs, weights, preactivation_TE)
        ctx.weight, ctx.activation = weight, activation
        ctx.frozen = [tensor.stop_gradient for tensor in (x, weight, bias)]
        if not activation:
            return preactivation_TE
        y_TE = empty_like(preactivation_TE)
        loaded().call("activate", activation, preactivation_TE.data_ptr(), y_TE.data_ptr(), count(y_TE))
        return y_TE

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        inputs, weights, preactivation_TE = ctx.saved_tensor()
        if ctx.activation:
            grad, bias_grad = paddle.assign(grad), empty([grad.shape[-1]])
            T, E = grad.shape
            addresses = (preactivation_TE.data_ptr(), grad.data_ptr())
            loaded().call("activate_backward", ctx.activation, *addresses, T, E, bias_grad.data_ptr())
        else:
            bias_grad = None if ctx.frozen[2] else column_sum(grad)
        invalidate([] if ctx.frozen[1] else [ctx.weight])
        grads = to_bf16(grad) if inputs.dtype == paddle.bfloat16 else grad
        return (
            None if ctx.frozen[0] else product(grads, weights, transpose_right=True),
            None if ctx.frozen[1] else product(inputs, grads, transpose_left=True),
            None if ctx.frozen[2] else bias_grad,
        )

"""CPU implementation of ernie.kernels.norm.  Legend: T packed tokens, D width."""

from __future__ import annotations

from paddle import Tensor
from paddle.autograd import PyLayer

from ernie.kernels.cpu.call import loaded, seed_of
from ernie.kernels.cpu.pool import empty, empty_like


def add_norm(
    residual_TD: Tensor, x_TD: Tensor, gain_D: Tensor, offset_D: Tensor, epsilon: float, dropout: float
) -> Tensor:
    """As ernie.kernels.norm.reference."""
    return _AddNorm.apply(residual_TD, x_TD, gain_D, offset_D, epsilon, dropout)


class _AddNorm(PyLayer):
    @staticmethod
    def forward(ctx, residual, x, gain, offset, epsilon: float, dropout: float):  # type: ignore[no-untyped-def]
        T, D = x.shape
        y, normal_TD, inverse_T = empty_like(x), empty_like(x), empty([T])
        ctx.dropout = (dropout, seed_of(dropout))
        inputs = [tensor.data_ptr() for tensor in (residual, x, gain, offset)]
        outputs = [tensor.data_ptr() for tensor in (y, normal_TD, inverse_T)]
        loaded().call("add_norm", *inputs, epsilon, *ctx.dropout, T, D, *outputs)
        ctx.save_for_backward(normal_TD, inverse_T, gain)
        ctx.frozen = [tensor.stop_gradient for tensor in (residual, x, gain, offset)]
        return y

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        normal_TD, inverse_T, gain = ctx.saved_tensor()
        T, D = grad.shape
        grads = [empty_like(grad), empty_like(grad), empty([D]), empty([D])]
        inputs = [tensor.data_ptr() for tensor in (grad, normal_TD, inverse_T, gain)]
        loaded().call("add_norm_backward", *inputs, *ctx.dropout, T, D, *(g.data_ptr() for g in grads))
        return tuple(None if frozen else g for frozen, g in zip(ctx.frozen, grads, strict=True))

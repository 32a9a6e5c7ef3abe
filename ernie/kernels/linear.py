"""A linear layer with a bias and an activation.  Legend: T rows, D and E widths."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
from paddle import Tensor
from paddle.autograd import PyLayer

from ernie.kernels import cpu, gpu
from ernie.kernels.argument_checks import check_activation, sizes
from ernie.kernels.choose import choose
from ernie.kernels.types import Activation


def linear(x_TD: Tensor, weight_DE: Tensor, bias_E: Tensor, activation: Activation = "none") -> Tensor:
    """f(x W + b), (T, D) -> (T, E).  Raises UserError if the shapes do not fit, or for an unknown activation.

    GELU is exact, not the tanh approximation (Hendrycks and Gimpel, 2016, arXiv 1606.08415).
    """
    sizes(x_TD=x_TD, weight_DE=weight_DE, bias_E=bias_E)
    check_activation(activation)
    impl = choose((x_TD, weight_DE, bias_E), reference, cpu.linear.linear, gpu.linear.linear)
    return impl(x_TD, weight_DE, bias_E, activation)


def reference(x_TD: Tensor, weight_DE: Tensor, bias_E: Tensor, activation: Activation) -> Tensor:
    """Reference implementation in plain Paddle."""
    y_TE = _Linear.apply(x_TD, weight_DE, bias_E)
    return y_TE if activation == "none" else getattr(F, activation)(y_TE)


class _Linear(PyLayer):
    """Same as `paddle.nn.functional.linear`, which on a CPU spends more time on the bias than on the matmul."""

    @staticmethod
    def forward(ctx, x_TD: Tensor, weight_DE: Tensor, bias_E: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x_TD, weight_DE)
        ctx.frozen = [tensor.stop_gradient for tensor in (x_TD, weight_DE, bias_E)]
        return paddle.addmm(bias_E.unsqueeze(0), x_TD, weight_DE)

    @staticmethod
    def backward(ctx, grad_TE: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[no-untyped-def]
        x_TD, weight_DE = ctx.saved_tensor()
        ones_1T = paddle.ones([1, grad_TE.shape[0]], grad_TE.dtype)
        gradients = (
            lambda: paddle.matmul(grad_TE, weight_DE, transpose_y=True),
            lambda: paddle.matmul(x_TD, grad_TE, transpose_x=True),
            lambda: paddle.matmul(ones_1T, grad_TE).reshape([-1]),
        )
        # Paddle requires None for tensors that need no gradient.
        return tuple(None if frozen else compute() for frozen, compute in zip(ctx.frozen, gradients, strict=True))

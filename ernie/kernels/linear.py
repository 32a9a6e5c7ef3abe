"""A linear layer with a bias.  Legend: T rows, D and E widths."""

from __future__ import annotations

import paddle
from paddle import Tensor
from paddle.autograd import PyLayer


def linear(x_TD: Tensor, weight_DE: Tensor, bias_E: Tensor) -> Tensor:
    """x W + b, (T, D) -> (T, E)."""
    return _Linear.apply(x_TD, weight_DE, bias_E)


class _Linear(PyLayer):
    """As `paddle.nn.functional.linear`, which on a CPU spends more time on the bias than on the product."""

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
        # Paddle insists on None for what needs no gradient.
        return tuple(None if frozen else compute() for frozen, compute in zip(ctx.frozen, gradients, strict=True))

"""GPU implementation of ernie.kernels.linear.  Legend: T rows, D and E widths."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
from paddle import Tensor
from paddle.incubate.nn.functional import fused_matmul_bias

from ernie.kernels.precision import cast


def linear(x_TD: Tensor, weight_DE: Tensor, bias_E: Tensor, activation: str) -> Tensor:
    """As ernie.kernels.linear.reference, with a fused bias; computes and returns the active precision.

    The activation is a separate operator: fused into the matmul (`fused_linear_activation`), GELU would be the tanh
    approximation.  The fused operator computes the bias's gradient with the weight's, so that the bias of a frozen
    weight would have none: it is then added by an operator of its own.
    """
    x, weight, bias = cast(x_TD), cast(weight_DE), cast(bias_E)
    if paddle.is_grad_enabled() and weight.stop_gradient and not bias.stop_gradient:
        y_TE = paddle.matmul(x, weight) + bias
    else:
        y_TE = fused_matmul_bias(x, weight, bias)
    return y_TE if activation == "none" else getattr(F, activation)(y_TE)

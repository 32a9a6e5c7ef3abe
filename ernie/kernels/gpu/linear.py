"""GPU implementation of ernie.kernels.linear.  Legend: T rows, D and E widths."""

from __future__ import annotations

import paddle.nn.functional as F
from paddle import Tensor
from paddle.incubate.nn.functional import fused_matmul_bias

from ernie.kernels.precision import cast


def linear(x_TD: Tensor, weight_DE: Tensor, bias_E: Tensor, activation: str) -> Tensor:
    """As ernie.kernels.linear.reference, with a fused bias; computes and returns the active precision.

    The activation is a separate operator: fused into the matmul (`fused_linear_activation`), GELU would be the tanh
    approximation.
    """
    y_TE = fused_matmul_bias(cast(x_TD), cast(weight_DE), cast(bias_E))
    return y_TE if activation == "none" else getattr(F, activation)(y_TE)

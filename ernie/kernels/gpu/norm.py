"""GPU implementation of ernie.kernels.norm.  Legend: T packed tokens, D width."""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
from paddle import Tensor
from paddle.incubate.nn.functional import fused_bias_dropout_residual_layer_norm

from ernie.kernels.layer_norm import layer_norm
from ernie.kernels.precision import cast, is_all_low


def add_norm(
    residual_TD: Tensor, x_TD: Tensor, gain_D: Tensor, offset_D: Tensor, epsilon: float, dropout: float
) -> Tensor:
    """As ernie.kernels.norm.reference, in one operator and in float32; at level O2, cast to the active precision.

    Paddle's alternatives are not usable: `fused_layer_norm` has no gradient, and `fused_dropout_add` is computed by
    two operators in Paddle 3.3.  The gradient of the fused operator is written for both inputs, even where only one
    wants it, and so ends the process when the other is frozen: then plain operators compute.
    """
    residual, x = residual_TD.astype("float32"), x_TD.astype("float32")
    tensors = (residual, x, gain_D, offset_D)
    learns = paddle.is_grad_enabled() and not all(tensor.stop_gradient for tensor in tensors)
    if learns and (residual.stop_gradient or x.stop_gradient):
        y_TD = layer_norm(residual + F.dropout(x, dropout), gain_D, offset_D, epsilon)
    else:
        y_TD = fused_bias_dropout_residual_layer_norm(
            x, residual, ln_scale=gain_D, ln_bias=offset_D, dropout_rate=dropout, ln_epsilon=epsilon
        )
    return cast(y_TD) if is_all_low() else y_TD

"""LayerNorm (Ba et al., 2016, arXiv 1607.06450) by Paddle's operator.  Legend: T packed tokens, D width."""

from __future__ import annotations

import paddle.nn.functional as F
from paddle import Tensor

from ernie.kernels.precision import in_float32


@in_float32
def layer_norm(x_TD: Tensor, gain_D: Tensor, offset_D: Tensor, epsilon: float) -> Tensor:
    """Paddle's LayerNorm with a correct gradient for a frozen gain too: on a CPU, Paddle 3.3 leaves the gain out."""
    width = x_TD.shape[-1:]
    if gain_D.stop_gradient:
        return F.layer_norm(x_TD, width, None, None, epsilon) * gain_D + offset_D
    return F.layer_norm(x_TD, width, gain_D, offset_D, epsilon)

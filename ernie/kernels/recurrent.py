"""A recurrent layer of gated units over packed sequences.  Cho et al., 2014 (arXiv 1406.1078).

Legend: T packed rows, N sequences, H units.
"""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
from paddle import Tensor

from ernie.data.batch import Layout
from ernie.kernels import cpu
from ernie.kernels.choose import choose


def gated_recurrent(
    x_TG: Tensor,
    layout: Layout,
    weight_HG: Tensor,
    bias_G: Tensor,
    begin_NH: Tensor | None = None,
    *,
    backward: bool = False,
) -> Tensor:
    """The states (T, H) of each sequence, one after the other, from its first row on, or backward from its last.

    x (T, 3 H) are the inputs of the reset gate, the update gate and the candidate; weight (H, 3 H) and bias (3 H,) make
    what the state adds to them.  `begin` are the states before, zeros if left out.
    """
    body = choose(x_TG, reference, cpu.recurrent.gated_recurrent, reference)
    return body(x_TG, layout, weight_HG, bias_G, begin_NH, backward)


def reference(
    x_TG: Tensor, layout: Layout, weight_HG: Tensor, bias_G: Tensor, begin_NH: Tensor | None, backward: bool
) -> Tensor:
    """What the layer is: r = sigmoid(x_r + a_r), z = sigmoid(x_z + a_z), n = tanh(x_n + r a_n) with a = h U + b, and
    h' = (1 - z) n + z h."""
    found: list[Tensor] = [x_TG] * layout.tokens
    for n in range(layout.sequences):
        rows = range(int(layout.offsets[n]), int(layout.offsets[n + 1]))
        h = paddle.zeros([1, weight_HG.shape[0]], x_TG.dtype) if begin_NH is None else begin_NH[n : n + 1]
        for row in reversed(rows) if backward else rows:
            x_r, x_z, x_n = paddle.chunk(x_TG[row : row + 1], 3, axis=-1)
            a_r, a_z, a_n = paddle.chunk(paddle.matmul(h, weight_HG) + bias_G, 3, axis=-1)
            z = F.sigmoid(x_z + a_z)
            h = (1 - z) * paddle.tanh(x_n + F.sigmoid(x_r + a_r) * a_n) + z * h
            found[row] = h
    return paddle.concat(found)

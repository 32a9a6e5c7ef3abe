"""A recurrent layer of gated units over packed sequences.  Cho et al., 2014 (arXiv 1406.1078).

Legend: T packed rows, N sequences, H units.
"""

from __future__ import annotations

import paddle
import paddle.nn.functional as F
from paddle import Tensor

from ernie.data.batch import Layout
from ernie.errors import UserError
from ernie.kernels import cpu
from ernie.kernels.check import check_layout, sizes
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
    Raises UserError where the shapes do not fit.
    """
    begin = {} if begin_NH is None else {"begin_NH": begin_NH}
    size = sizes(x_TG=x_TG, weight_HG=weight_HG, bias_G=bias_G, **begin)
    if size["G"] != 3 * size["H"]:
        raise UserError(
            f"weight_HG has the shape {tuple(weight_HG.shape)}: expected three times as many columns as rows"
        )
    check_layout(layout, size["T"])
    if size.get("N", layout.sequences) != layout.sequences:
        raise UserError(f"begin_NH is of {size['N']} sequences: expected {layout.sequences}, as layout has")
    body = choose((x_TG, weight_HG, bias_G, *begin.values()), reference, cpu.recurrent.gated_recurrent, reference)
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

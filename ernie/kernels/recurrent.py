"""A recurrent layer of gated units over packed sequences.  Cho et al., 2014 (arXiv 1406.1078).

Legend: T packed rows, N sequences, H units.
"""

from __future__ import annotations

import numpy as np
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
    place, order = layout.positions, np.argsort(-layout.lengths, kind="stable")
    if backward:
        place = np.repeat(layout.lengths, layout.lengths) - 1 - place
    # All first rows, all second rows and so on, those of the longest sequences before others: who goes on comes first.
    rows = np.lexsort((np.repeat(np.argsort(order), layout.lengths), place))
    begin = paddle.zeros([layout.sequences, weight_HG.shape[0]], x_TG.dtype) if begin_NH is None else begin_NH
    h_NH, found = paddle.gather(begin, paddle.to_tensor(order)), []
    for x in paddle.split(paddle.gather(x_TG, paddle.to_tensor(rows)), np.bincount(place).tolist()):
        h_NH = h_NH[: x.shape[0]]
        x_r, x_z, x_n = paddle.chunk(x, 3, axis=-1)
        a_r, a_z, a_n = paddle.chunk(paddle.matmul(h_NH, weight_HG) + bias_G, 3, axis=-1)
        z = F.sigmoid(x_z + a_z)
        h_NH = (1 - z) * paddle.tanh(x_n + F.sigmoid(x_r + a_r) * a_n) + z * h_NH
        found.append(h_NH)
    return paddle.gather(paddle.concat(found), paddle.to_tensor(np.argsort(rows)))

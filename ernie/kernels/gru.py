"""A layer of gated recurrent units (GRU) over packed sequences.  Cho et al., 2014 (arXiv 1406.1078).

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
from ernie.kernels.argument_checks import check_layout, sizes
from ernie.kernels.choose import choose


def gated_recurrent(
    x_TG: Tensor,
    layout: Layout,
    weight_HG: Tensor,
    bias_G: Tensor,
    initial_NH: Tensor | None = None,
    *,
    backward: bool = False,
) -> Tensor:
    """Return the states (T, H) of each sequence, computed from its first row on, or `backward` from its last.

    `x` (T, 3 H) are the inputs of the reset gate, the update gate and the candidate.  `weight` (H, 3 H) and `bias` (3
    H,) compute what the previous state adds to them.  `initial` (N, H) are the states before the first step, zeros by
    default.  Raises UserError if the shapes do not fit.
    """
    initial = {} if initial_NH is None else {"initial_NH": initial_NH}
    size = sizes(x_TG=x_TG, weight_HG=weight_HG, bias_G=bias_G, **initial)
    if size["G"] != 3 * size["H"]:
        raise UserError(
            f"weight_HG has the shape {tuple(weight_HG.shape)}: expected three times as many columns as rows"
        )
    check_layout(layout, size["T"])
    if size.get("N", layout.sequences) != layout.sequences:
        raise UserError(f"initial_NH has {size['N']} sequences: expected {layout.sequences}, as in layout")
    if not size["T"]:
        return x_TG[:, : size["H"]]
    impl = choose((x_TG, weight_HG, bias_G, *initial.values()), reference, cpu.gru.gated_recurrent)
    return impl(x_TG, layout, weight_HG, bias_G, initial_NH, backward)


def reference(
    x_TG: Tensor, layout: Layout, weight_HG: Tensor, bias_G: Tensor, initial_NH: Tensor | None, backward: bool
) -> Tensor:
    """Reference implementation in plain Paddle.

    r = sigmoid(x_r + a_r), z = sigmoid(x_z + a_z), n = tanh(x_n + r a_n) with a = h U + b, and h' = (1 - z) n + z h.
    """
    step, order = layout.positions, np.argsort(-layout.lengths, kind="stable")
    if backward:
        step = np.repeat(layout.lengths, layout.lengths) - 1 - step
    # Rows are sorted by time step and, within a step, by descending length of their sequences, so that the sequences
    # which continue come first.
    rows = np.lexsort((np.repeat(np.argsort(order), layout.lengths), step))
    initial = paddle.zeros([layout.sequences, weight_HG.shape[0]], x_TG.dtype) if initial_NH is None else initial_NH
    h_NH, states = paddle.gather(initial, paddle.to_tensor(order)), []
    for x in paddle.split(paddle.gather(x_TG, paddle.to_tensor(rows)), np.bincount(step).tolist()):
        h_NH = h_NH[: x.shape[0]]
        x_r, x_z, x_n = paddle.chunk(x, 3, axis=-1)
        a_r, a_z, a_n = paddle.chunk(paddle.matmul(h_NH, weight_HG) + bias_G, 3, axis=-1)
        z = F.sigmoid(x_z + a_z)
        h_NH = (1 - z) * paddle.tanh(x_n + F.sigmoid(x_r + a_r) * a_n) + z * h_NH
        states.append(h_NH)
    return paddle.gather(paddle.concat(states), paddle.to_tensor(np.argsort(rows)))

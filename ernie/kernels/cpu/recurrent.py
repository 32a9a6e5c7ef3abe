"""CPU body of ernie.kernels.recurrent: one loop over time for all sequences, their weights in the cores' caches.

Legend: T packed rows, N sequences, H units.
"""

from __future__ import annotations

import numpy as np
import paddle
from paddle import Tensor
from paddle.autograd import PyLayer

from ernie.data.batch import Layout
from ernie.kernels.cpu.call import byref, column_sum, loaded, product
from ernie.kernels.cpu.library import Recurrence
from ernie.kernels.cpu.room import empty


def gated_recurrent(
    x_TG: Tensor, layout: Layout, weight_HG: Tensor, bias_G: Tensor, begin_NH: Tensor | None, backward: bool
) -> Tensor:
    """As ernie.kernels.recurrent.reference."""
    zeros = [layout.sequences, weight_HG.shape[0]]
    begin = paddle.zeros(zeros, x_TG.dtype) if begin_NH is None else begin_NH
    return _Recurrent.apply(x_TG, weight_HG, bias_G, begin, layout, backward)


class _Recurrent(PyLayer):
    @staticmethod
    def forward(ctx, x, weight, bias, begin, layout, backward):  # type: ignore[no-untyped-def]
        x, begin = x.contiguous(), begin.contiguous()
        T, H = x.shape[0], weight.shape[0]
        ctx.shape = _Shape(layout, H, begin, backward)
        h, kept = empty([T, H]), empty([T, 4 * H])
        given = (x.data_ptr(), weight.data_ptr(), bias.data_ptr())
        loaded().call("gru_forward", byref(ctx.shape.structure), *given, h.data_ptr(), kept.data_ptr())
        ctx.save_for_backward(weight, begin, h, kept)
        ctx.frozen = [tensor.stop_gradient for tensor in (x, weight, bias, begin)]
        return h

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        weight, begin, h, kept = ctx.saved_tensor()
        grad, (T, H) = grad.contiguous(), h.shape
        dx, d_added, d_begin = empty([T, 3 * H]), empty([T, 3 * H]), empty(begin.shape)
        given = (weight.data_ptr(), h.data_ptr(), kept.data_ptr(), grad.data_ptr())
        out = (dx.data_ptr(), d_added.data_ptr(), d_begin.data_ptr())
        loaded().call("gru_backward", byref(ctx.shape.structure), *given, *out)
        before = None if ctx.frozen[1] else ctx.shape.before(h, begin)
        grads = (
            dx,
            None if before is None else product(before, d_added, turn_left=True),
            None if ctx.frozen[2] else column_sum(d_added),
            d_begin,
        )
        return tuple(None if frozen else g for frozen, g in zip(ctx.frozen, grads, strict=True))


class _Shape:
    """The sequences in C's words, and the arrays that these point to."""

    def __init__(self, layout: Layout, units: int, begin: Tensor, backward: bool):
        self._layout, self._backward, self._begin = layout, backward, begin
        self._offsets = np.ascontiguousarray(layout.offsets, np.int64)
        self._order = np.argsort(-layout.lengths, kind="stable").astype(np.int64)
        addresses = (self._offsets.ctypes.data, self._order.ctypes.data)
        self.structure = Recurrence(layout.sequences, units, *addresses, int(backward), begin.data_ptr())

    def before(self, h: Tensor, begin: Tensor) -> Tensor:
        """The state before each row, (T, H)."""
        layout = self._layout
        place, step = layout.positions, -1
        first = place == 0
        if self._backward:
            place, step = np.repeat(layout.lengths, layout.lengths) - 1 - place, 1
            first = place == 0
        rows = np.arange(layout.tokens) + step
        rows[first] = layout.tokens + np.repeat(np.arange(layout.sequences), layout.lengths)[first]
        return paddle.gather(paddle.concat([h, begin]), paddle.to_tensor(rows))

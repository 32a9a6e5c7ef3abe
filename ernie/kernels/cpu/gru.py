"""CPU implementation of ernie.kernels.gru: one loop over time, with the weights in the cores' caches.

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
from ernie.kernels.cpu.pool import empty


def gated_recurrent(
    x_TG: Tensor, layout: Layout, weight_HG: Tensor, bias_G: Tensor, initial_NH: Tensor | None, backward: bool
) -> Tensor:
    """As ernie.kernels.gru.reference."""
    zeros = [layout.sequences, weight_HG.shape[0]]
    initial = paddle.zeros(zeros, x_TG.dtype) if initial_NH is None else initial_NH
    return _Recurrent.apply(x_TG, weight_HG, bias_G, initial, layout, backward)


class _Recurrent(PyLayer):
    @staticmethod
    def forward(ctx, x, weight, bias, initial, layout, backward):  # type: ignore[no-untyped-def]
        x, initial = x.contiguous(), initial.contiguous()
        T, H = x.shape[0], weight.shape[0]
        ctx.shape = _Shape(layout, H, initial, backward)
        h, saved = empty([T, H]), empty([T, 4 * H])
        inputs = (x.data_ptr(), weight.data_ptr(), bias.data_ptr())
        loaded().call("gru_forward", byref(ctx.shape.structure), *inputs, h.data_ptr(), saved.data_ptr())
        ctx.save_for_backward(weight, initial, h, saved)
        ctx.frozen = [tensor.stop_gradient for tensor in (x, weight, bias, initial)]
        return h

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        weight, initial, h, saved = ctx.saved_tensor()
        grad, (T, H) = grad.contiguous(), h.shape
        dx, d_added, d_initial = empty([T, 3 * H]), empty([T, 3 * H]), empty(initial.shape)
        inputs = (weight.data_ptr(), h.data_ptr(), saved.data_ptr(), grad.data_ptr())
        outputs = (dx.data_ptr(), d_added.data_ptr(), d_initial.data_ptr())
        loaded().call("gru_backward", byref(ctx.shape.structure), *inputs, *outputs)
        before = None if ctx.frozen[1] else ctx.shape.before(h, initial)
        grads = (
            dx,
            None if before is None else product(before, d_added, transpose_left=True),
            None if ctx.frozen[2] else column_sum(d_added),
            d_initial,
        )
        return tuple(None if frozen else g for frozen, g in zip(ctx.frozen, grads, strict=True))


class _Shape:
    """The sequences as a C structure, and the arrays that it points to."""

    def __init__(self, layout: Layout, units: int, initial: Tensor, backward: bool):
        self._layout, self._backward, self._initial = layout, backward, initial
        self._offsets = np.ascontiguousarray(layout.offsets, np.int64)
        self._order = np.argsort(-layout.lengths, kind="stable").astype(np.int64)
        addresses = (self._offsets.ctypes.data, self._order.ctypes.data)
        self.structure = Recurrence(layout.sequences, units, *addresses, int(backward), initial.data_ptr())

    def before(self, h: Tensor, initial: Tensor) -> Tensor:
        """Return the state before each row, (T, H)."""
        layout = self._layout
        position, step = layout.positions, -1
        first = position == 0
        if self._backward:
            position, step = np.repeat(layout.lengths, layout.lengths) - 1 - position, 1
            first = position == 0
        rows = np.arange(layout.tokens) + step
        rows[first] = layout.tokens + np.repeat(np.arange(layout.sequences), layout.lengths)[first]
        return paddle.gather(paddle.concat([h, initial]), paddle.to_tensor(rows))

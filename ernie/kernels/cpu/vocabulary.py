"""CPU body of ernie.kernels.vocabulary.  Legend: P positions, D width, V vocabulary."""

from __future__ import annotations

import paddle
from paddle import Tensor
from paddle.autograd import PyLayer

from ernie.kernels.cpu.call import column_sum, loaded, low, low_copy, product
from ernie.kernels.precision import is_low

_ROWS = 1024  # positions whose logits are in memory at one time, in float32


def vocabulary_cross_entropy(x_PD: Tensor, table_VD: Tensor, bias_V: Tensor, labels_P: Tensor) -> Tensor:
    """As ernie.kernels.vocabulary.reference; of the logits only their gradient is kept."""
    return _CrossEntropy.apply(x_PD, table_VD, bias_V, labels_P)


class _CrossEntropy(PyLayer):
    @staticmethod
    def forward(ctx, x, table, bias, labels):  # type: ignore[no-untyped-def]
        low_type = is_low()
        inputs, weights = (low(x), low_copy(table)) if low_type else (x, table)
        P, V = x.shape[0], table.shape[0]
        slope_PV = paddle.empty([P, V], "bfloat16" if low_type else "float32")
        loss_P = paddle.empty([P])
        for first in range(0, P, _ROWS):
            rows = min(_ROWS, P - first)
            logits = product(inputs[first : first + rows] if P > _ROWS else inputs, weights, bias, turn_right=True)
            labels_at = labels.data_ptr() + labels.element_size() * first
            slope_at = slope_PV.data_ptr() + slope_PV.element_size() * first * V
            out = (loss_P.data_ptr() + 4 * first, slope_at)
            loaded().call("cross_entropy", int(low_type), logits.data_ptr(), labels_at, rows, V, *out)
        ctx.save_for_backward(inputs, weights, slope_PV)
        ctx.frozen = [tensor.stop_gradient for tensor in (x, table, bias)]
        return loss_P.sum()

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        inputs, weights, slope_PV = ctx.saved_tensor()
        low_type = int(slope_PV.dtype == paddle.bfloat16)
        loaded().call("scale", low_type, slope_PV.data_ptr(), slope_PV.size, float(grad))
        return (
            None if ctx.frozen[0] else product(slope_PV, weights),
            None if ctx.frozen[1] else product(slope_PV, inputs, turn_left=True),
            None if ctx.frozen[2] else column_sum(slope_PV),
            None,
        )[:3]

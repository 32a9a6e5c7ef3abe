"""CPU body of ernie.kernels.vocabulary.  Legend: P positions, D width, V vocabulary."""

from __future__ import annotations

import numpy as np
import paddle
from paddle import Tensor
from paddle.autograd import PyLayer

from ernie.errors import UserError
from ernie.kernels.cpu.call import column_sum, count, loaded, low, product, row_numbers
from ernie.kernels.cpu.copies import doubt, low_copy
from ernie.kernels.cpu.room import empty
from ernie.kernels.precision import is_low

_ROWS = 1024  # positions whose logits are in memory at one time, in float32


def vocabulary_cross_entropy(x_PD: Tensor, table_VD: Tensor, bias_V: Tensor, labels_P: np.ndarray) -> Tensor:
    """As ernie.kernels.vocabulary.reference; of the logits only their gradient is kept."""
    return _CrossEntropy.apply(x_PD, table_VD, bias_V, labels_P)


class _CrossEntropy(PyLayer):
    @staticmethod
    def forward(ctx, x, table, bias, labels):  # type: ignore[no-untyped-def]
        low_type = is_low()
        inputs, weights = (low(x), low_copy(table)) if low_type else (x, table)
        P, V = x.shape[0], table.shape[0]
        slope_PV = empty([P, V], paddle.bfloat16 if low_type else paddle.float32)
        loss_P = empty([P])
        labels = row_numbers(labels, V, "label")
        if len(labels) != P:
            raise UserError(f"{len(labels)} labels for {P} positions")
        for first in range(0, P, _ROWS):
            rows = min(_ROWS, P - first)
            logits = product(inputs[first : first + rows] if P > _ROWS else inputs, weights, bias, turn_right=True)
            labels_at = labels.ctypes.data + 8 * first
            slope_at = slope_PV.data_ptr() + slope_PV.element_size() * first * V
            out = (loss_P.data_ptr() + 4 * first, slope_at)
            loaded().call("cross_entropy", int(low_type), logits.data_ptr(), labels_at, rows, V, *out)
        ctx.save_for_backward(inputs, weights, slope_PV)
        ctx.table, ctx.frozen = table, [tensor.stop_gradient for tensor in (x, table, bias)]
        return loss_P.sum()

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        inputs, weights, slope_PV = ctx.saved_tensor()
        factor = float(grad)  # applied to the small matrices; the slope stays as it is for another backward pass
        frozen_x, frozen_table, frozen_bias = ctx.frozen
        doubt([] if frozen_table else [ctx.table])
        return (
            None if frozen_x else _scaled(product(slope_PV, weights), factor),
            None if frozen_table else product(slope_PV, _scaled(inputs.clone(), factor), turn_left=True),
            None if frozen_bias else _scaled(column_sum(slope_PV), factor),
        )


def _scaled(x: Tensor, factor: float) -> Tensor:
    loaded().call("scale", int(x.dtype == paddle.bfloat16), x.data_ptr(), count(x), factor)
    return x

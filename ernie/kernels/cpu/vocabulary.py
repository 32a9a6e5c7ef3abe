"""CPU implementation of ernie.kernels.vocabulary.  Legend: P positions, D width, V vocabulary."""

from __future__ import annotations

import numpy as np
import paddle
from paddle import Tensor
from paddle.autograd import PyLayer

from ernie.kernels.cpu.call import column_sum, count, loaded, product, to_bf16
from ernie.kernels.cpu.copies import bf16_copy, invalidate
from ernie.kernels.cpu.pool import empty
from ernie.kernels.precision import is_low
from ernie.kernels.samples import Samples

_ROWS = 1024  # positions whose float32 logits are in memory at a time


def vocabulary_logits(x_PD: Tensor, table_VD: Tensor, bias_V: Tensor) -> Tensor:
    """As ernie.kernels.vocabulary.reference_logits: in float32 also where training computes in bfloat16."""
    logits: Tensor = _Logits.apply(x_PD, table_VD, bias_V)
    return logits


class _Logits(PyLayer):
    @staticmethod
    def forward(ctx, x, table, bias):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(x, table)
        ctx.frozen = [tensor.stop_gradient for tensor in (x, table, bias)]
        return product(x, table, bias, transpose_right=True)

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        x, table = ctx.saved_tensor()
        frozen_x, frozen_table, frozen_bias = ctx.frozen
        invalidate([] if frozen_table else [table])
        return (
            None if frozen_x else product(grad, table),
            None if frozen_table else product(grad, x, transpose_left=True),
            None if frozen_bias else column_sum(grad),
        )


def vocabulary_cross_entropy(
    x_PD: Tensor, table_VD: Tensor, bias_V: Tensor, labels_P: np.ndarray, samples: Samples | None = None
) -> Tensor:
    """As ernie.kernels.vocabulary.reference; of the logits, only the gradient is kept."""
    return _CrossEntropy.apply(x_PD, table_VD, bias_V, labels_P, samples)


def sample(logits_PV: Tensor, samples: Samples) -> None:
    """As ernie.kernels.vocabulary.reference_sample."""
    logits_PV, (P, V) = logits_PV.contiguous(), logits_PV.shape
    loss_P, labels_P = empty([P]), np.zeros(P, np.int64)
    given, (chance, drawn) = (logits_PV.data_ptr(), labels_P.ctypes.data), _addresses(samples)
    loaded().call("cross_entropy", 0, *given, chance, P, V, loss_P.data_ptr(), None, drawn)


class _CrossEntropy(PyLayer):
    @staticmethod
    def forward(ctx, x, table, bias, labels, samples):  # type: ignore[no-untyped-def]
        use_bf16 = is_low()
        inputs, weights = (to_bf16(x), bf16_copy(table)) if use_bf16 else (x, table)
        P, V = x.shape[0], table.shape[0]
        logit_grad_PV = empty([P, V], paddle.bfloat16 if use_bf16 else paddle.float32)
        loss_P = empty([P])
        for first in range(0, P, _ROWS):
            rows = min(_ROWS, P - first)
            logits = product(inputs[first : first + rows] if P > _ROWS else inputs, weights, bias, transpose_right=True)
            given, chance, drawn = (array and array + 8 * first for array in (labels.ctypes.data, *_addresses(samples)))
            grad = logit_grad_PV.data_ptr() + logit_grad_PV.element_size() * first * V
            outputs = (loss_P.data_ptr() + 4 * first, grad, drawn)
            loaded().call("cross_entropy", int(use_bf16), logits.data_ptr(), given, chance, rows, V, *outputs)
        ctx.save_for_backward(inputs, weights, logit_grad_PV)
        ctx.table, ctx.frozen = table, [tensor.stop_gradient for tensor in (x, table, bias)]
        return loss_P.sum()

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        inputs, weights, logit_grad_PV = ctx.saved_tensor()
        factor = float(grad)  # applied to the small matrices: logit_grad_PV must stay intact for another backward pass
        frozen_x, frozen_table, frozen_bias = ctx.frozen
        invalidate([] if frozen_table else [ctx.table])
        return (
            None if frozen_x else _scaled(product(logit_grad_PV, weights), factor),
            None if frozen_table else product(logit_grad_PV, _scaled(inputs.clone(), factor), transpose_left=True),
            None if frozen_bias else _scaled(column_sum(logit_grad_PV), factor),
        )


def _addresses(samples: Samples | None) -> tuple[int | None, int | None]:
    """Where the numbers are that decide what is drawn, and where what is drawn goes; None without samples."""
    return (None, None) if samples is None else (samples.draws_P.ctypes.data, samples.classes_P.ctypes.data)


def _scaled(x: Tensor, factor: float) -> Tensor:
    loaded().call("scale", int(x.dtype == paddle.bfloat16), x.data_ptr(), count(x), factor)
    return x

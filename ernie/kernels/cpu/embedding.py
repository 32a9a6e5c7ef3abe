"""CPU implementation of ernie.kernels.embedding.  Legend: T packed tokens, D width."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import c_void_p

import numpy as np
from paddle import Tensor
from paddle.autograd import PyLayer

from ernie.kernels.cpu.call import loaded, seed_of
from ernie.kernels.cpu.pool import empty, empty_like


def embed(
    ids: Sequence[np.ndarray],
    tables: Sequence[Tensor],
    gain_D: Tensor,
    offset_D: Tensor,
    epsilon: float,
    dropout: float,
) -> Tensor:
    """As ernie.kernels.embedding.reference."""
    return _Embed.apply(*tables, gain_D, offset_D, list(ids), epsilon, dropout)


class _Embed(PyLayer):
    @staticmethod
    def forward(ctx, *args):  # type: ignore[no-untyped-def]
        *tables, gain, offset, ids, epsilon, dropout = args
        T, D = ids[0].shape[0], tables[0].shape[1]
        sum_TD, y, normal_TD, inverse_T = (empty(shape) for shape in ([T, D], [T, D], [T, D], [T]))
        ctx.ids = ids
        loaded().call("gather_sum", len(tables), _pointers(tables), _array_pointers(ctx.ids), T, D, sum_TD.data_ptr())
        ctx.dropout = (dropout, seed_of(dropout))
        weights, out = (gain.data_ptr(), offset.data_ptr()), (y.data_ptr(), normal_TD.data_ptr(), inverse_T.data_ptr())
        loaded().call("add_norm", sum_TD.data_ptr(), None, *weights, epsilon, 0.0, 0, T, D, *out)
        if dropout:
            loaded().call("drop", y.data_ptr(), *ctx.dropout, T, D, y.data_ptr())
        ctx.save_for_backward(normal_TD, inverse_T, gain)
        ctx.shapes = [table.shape for table in tables]
        ctx.frozen = [tensor.stop_gradient for tensor in (*tables, gain, offset)]
        return y

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        normal_TD, inverse_T, gain = ctx.saved_tensor()
        T, D = grad.shape
        if ctx.dropout[0]:
            dropped = empty_like(grad)
            loaded().call("drop", grad.data_ptr(), *ctx.dropout, T, D, dropped.data_ptr())
            grad = dropped
        dsum, dgain, doffset = empty_like(grad), empty([D]), empty([D])
        inputs = [tensor.data_ptr() for tensor in (grad, normal_TD, inverse_T, gain)]
        out = (dsum.data_ptr(), None, dgain.data_ptr(), doffset.data_ptr())
        loaded().call("add_norm_backward", *inputs, 0.0, 0, T, D, *out)
        tables = [empty(shape).zero_() for shape in ctx.shapes]
        loaded().call("scatter_add", len(tables), _pointers(tables), _array_pointers(ctx.ids), T, D, dsum.data_ptr())
        return tuple(None if frozen else g for frozen, g in zip(ctx.frozen, (*tables, dgain, doffset), strict=True))


def _pointers(tensors: Sequence[Tensor]) -> object:
    return (c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))


def _array_pointers(arrays: Sequence[np.ndarray]) -> object:
    return (c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))

"""CPU implementation of ernie.kernels.attention.  Legend: T packed queries, S packed keys, H heads, D width."""

from __future__ import annotations

from paddle import Tensor
from paddle.autograd import PyLayer

from ernie.data.batch import Layout
from ernie.kernels.cpu.call import Shape, byref, loaded, seed_of
from ernie.kernels.cpu.pool import empty, empty_like
from ernie.kernels.mask import Mask


def attention(
    q_TD: Tensor,
    k_SD: Tensor,
    v_SD: Tensor,
    layout: Layout,
    heads: int,
    dropout: float,
    keys: Layout,
    mask: Mask | None,
) -> Tensor:
    """As ernie.kernels.attention.reference, without materializing the attention matrix."""
    shape = Shape(layout, keys, heads, q_TD.shape[-1], mask)
    return _Attention.apply(q_TD, k_SD, v_SD, shape, heads, dropout)


class _Attention(PyLayer):
    @staticmethod
    def forward(ctx, q, k, v, shape: Shape, heads: int, dropout: float):  # type: ignore[no-untyped-def]
        mixed_TD, logsum_TH = empty_like(q), empty([q.shape[0], heads])
        seed = seed_of(dropout)
        addresses = [x.data_ptr() for x in (q, k, v, mixed_TD, logsum_TH)]
        loaded().call("attention_forward", 0, byref(shape.structure), dropout, seed, *addresses)
        ctx.save_for_backward(q, k, v, mixed_TD, logsum_TH)
        ctx.call = (shape, dropout, seed)
        ctx.frozen = [x.stop_gradient for x in (q, k, v)]
        return mixed_TD

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        q, k, v, mixed_TD, logsum_TH = ctx.saved_tensor()
        shape, dropout, seed = ctx.call
        grads = [empty_like(x) for x in (q, k, v)]
        addresses = [x.data_ptr() for x in (q, k, v, mixed_TD, logsum_TH, grad, *grads)]
        loaded().call("attention_backward", 0, byref(shape.structure), dropout, seed, *addresses)
        return tuple(None if frozen else g for frozen, g in zip(ctx.frozen, grads, strict=True))

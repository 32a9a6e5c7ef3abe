"""A post-norm Transformer layer as one kernel.

Legend: T packed tokens, D width, F inner width.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from types import MappingProxyType

import numpy as np
import paddle
from paddle import Tensor
from paddle.autograd import PyLayer

from ernie.data.batch import Layout
from ernie.kernels import cpu, gpu
from ernie.kernels.argument_checks import (
    check_activation,
    check_attention,
    check_dropout,
    check_factors,
    check_layer,
    check_layout,
    output_rows,
)
from ernie.kernels.attention import attention
from ernie.kernels.choose import choose
from ernie.kernels.linear import linear
from ernie.kernels.mask import Mask
from ernie.kernels.norm import add_norm
from ernie.kernels.precision import as_given
from ernie.kernels.types import Factors, LayerSettings, LayerWeights
from ernie.kernels.upload import on_device

NONE: Mapping[str, Factors] = MappingProxyType({})


def transformer_layer(
    x_TD: Tensor,
    layout: Layout,
    weights: LayerWeights,
    settings: LayerSettings,
    mask: Mask | None = None,
    rows: np.ndarray | None = None,
    factors: Mapping[str, Factors] = NONE,
) -> Tensor:
    """Self-attention and a feed-forward network, each followed by dropout, residual and LayerNorm, (T, D) -> (T, D).

    Devlin et al. (2019, arXiv 1810.04805), section 3.  Input and output are float32 in every precision, except on a
    GPU at level O2.  With `rows`, in ascending order, the output is computed at those tokens and is zero elsewhere.
    Matrices named in `factors`, which have their values already, pass their gradients on to these.  Raises UserError if
    the shapes or settings do not fit.
    """
    check_layer(x_TD, weights)
    check_factors(weights, factors)
    check_layout(layout, x_TD.shape[0])
    check_attention(layout, x_TD.shape[1], settings.heads, mask)
    check_activation(settings.activation)
    for dropout in (settings.dropout, settings.attention_dropout):
        check_dropout(dropout)
    rows = None if rows is None else output_rows(rows, layout.tokens)
    learned = [factor for each in factors.values() for factor in (each.a, each.b)]
    impl = choose((x_TD, *weights, *learned), reference, cpu.layer.transformer_layer, on_gpu)
    return impl(x_TD, layout, weights, settings, mask, rows, factors)


def routed(weights: LayerWeights, factors: Mapping[str, Factors]) -> LayerWeights:
    """Return the weights, with matrices that pass their gradients on to their factors."""
    found = {
        name: _Routed.apply(a, b, partial(getattr, weights, name), scale) for name, (a, b, scale) in factors.items()
    }
    return weights._replace(**found) if found else weights


class _Routed(PyLayer):
    @staticmethod
    def forward(ctx, a, b, weight, scale):  # type: ignore[no-untyped-def]
        ctx.save_for_backward(a, b)
        ctx.scale = scale
        return weight().detach()  # as an argument of its own Paddle would take it for changed in place

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        a, b = ctx.saved_tensor()
        with as_given():
            da, db = paddle.matmul(grad, b, transpose_y=True), paddle.matmul(a, grad, transpose_x=True)
        return da * ctx.scale, db * ctx.scale


def reference(
    x_TD: Tensor,
    layout: Layout,
    weights: LayerWeights,
    settings: LayerSettings,
    mask: Mask | None,
    rows: np.ndarray | None,
    factors: Mapping[str, Factors] = NONE,
) -> Tensor:
    """Reference implementation: the smaller kernels one after the other."""
    y_TD = x_TD
    for _, output in operators(x_TD, layout, routed(weights, factors), settings, mask):
        y_TD = output
    return y_TD if rows is None else only_rows(y_TD, rows)


def operators(
    x_TD: Tensor, layout: Layout, weights: LayerWeights, settings: LayerSettings, mask: Mask | None
) -> Iterator[tuple[str, Tensor]]:
    """Yield the output of each smaller kernel of a layer by its name, in the order of computation.

    The last one is the layer's own output.  The inner product has its activation, a norm its dropout and residual.
    """
    w, s = weights, settings
    q, k, v = linear(x_TD, w.q, w.q_bias), linear(x_TD, w.k, w.k_bias), linear(x_TD, w.v, w.v_bias)
    yield from (("q", q), ("k", k), ("v", v))
    mixed_TD = attention(q, k, v, layout, s.heads, s.attention_dropout, mask=mask)
    yield "attention", mixed_TD
    out_TD = linear(mixed_TD, w.out, w.out_bias)
    yield "attention_out", out_TD
    x_TD = add_norm(x_TD, out_TD, w.gain1, w.offset1, s.epsilon, s.dropout)
    yield "attention_norm", x_TD
    inner_TF = linear(x_TD, w.inner, w.inner_bias, s.activation)
    yield "inner", inner_TF
    outer_TD = linear(inner_TF, w.outer, w.outer_bias)
    yield "outer", outer_TD
    yield "output_norm", add_norm(x_TD, outer_TD, w.gain2, w.offset2, s.epsilon, s.dropout)


def on_gpu(
    x_TD: Tensor,
    layout: Layout,
    weights: LayerWeights,
    settings: LayerSettings,
    mask: Mask | None,
    rows: np.ndarray | None,
    factors: Mapping[str, Factors] = NONE,
) -> Tensor:
    """As `reference`, with one product for queries, keys and values.  With `rows` it computes the rest for these."""
    w, s = routed(weights, factors), settings
    projected = gpu.linear.side_by_side(x_TD, (w.q, w.k, w.v), (w.q_bias, w.k_bias, w.v_bias))
    q, k, v = paddle.split(projected, 3, axis=-1)
    mixed_TD = attention(q, k, v, layout, s.heads, s.attention_dropout, mask=mask)
    index = None if rows is None or not len(rows) else on_device(rows)
    if index is not None:
        mixed_TD, x_TD = paddle.gather(mixed_TD, index), paddle.gather(x_TD, index)
    x_TD = add_norm(x_TD, linear(mixed_TD, w.out, w.out_bias), w.gain1, w.offset1, s.epsilon, s.dropout)
    inner_TF = linear(x_TD, w.inner, w.inner_bias, s.activation)
    y_TD = add_norm(x_TD, linear(inner_TF, w.outer, w.outer_bias), w.gain2, w.offset2, s.epsilon, s.dropout)
    if index is not None:
        return paddle.scatter_nd(index.unsqueeze(-1), y_TD, [layout.tokens, y_TD.shape[1]])
    return y_TD if rows is None else only_rows(y_TD, rows)


def only_rows(y_TD: Tensor, rows: np.ndarray) -> Tensor:
    """Return vectors with zero in place of all but some rows."""
    wanted_T1 = np.zeros((y_TD.shape[0], 1))
    wanted_T1[rows] = 1
    return y_TD * paddle.to_tensor(wanted_T1).astype(y_TD.dtype)

"""Attention over packed sequences: no token attends to another sequence.

Legend: T packed queries, S packed keys, N sequences, L and M the longest query and key sequence, H heads, K head size,
D = H * K.
"""

from __future__ import annotations

import math
from functools import lru_cache, partial

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor

from ernie.data.batch import Layout
from ernie.errors import UserError
from ernie.kernels import cpu, gpu
from ernie.kernels.argument_checks import check_attention, check_dropout, check_layout, sizes
from ernie.kernels.choose import choose
from ernie.kernels.mask import Mask
from ernie.kernels.precision import in_float32
from ernie.kernels.types import Runs
from ernie.kernels.upload import on_device

_MASKED = -1e4  # added to the scores of masked keys: their softmax weight vanishes, also in fp16


def attention(
    q_TD: Tensor,
    k_SD: Tensor,
    v_SD: Tensor,
    layout: Layout,
    heads: int,
    dropout: float = 0.0,
    *,
    keys: Layout | None = None,
    mask: Mask | None = None,
) -> Tensor:
    """Scaled dot-product attention within each sequence, (T, D) -> (T, D).

    Vaswani et al. (2017, arXiv 1706.03762), section 3.2.  `dropout` is the probability of dropping an attention
    weight.  `keys` is the layout of keys and values that come from other sequences than the queries: the n-th query
    sequence then attends to the n-th key sequence.  `mask` restricts the keys each query sees; the default is all.

    Raises UserError if the shapes do not fit.
    """
    keys = keys or layout
    size = sizes(q_TD=q_TD, k_SD=k_SD, v_SD=v_SD)
    check_layout(layout, size["T"])
    check_layout(keys, size["S"], "keys")
    if keys.sequences != layout.sequences:
        raise UserError(f"keys has {keys.sequences} sequences: expected {layout.sequences}, as in layout")
    check_attention(layout, size["D"], heads, mask)
    check_dropout(dropout)
    gpu_takes = partial(gpu.attention.supports, size["D"], heads, layout, dropout, keys, mask)
    impl = choose((q_TD, k_SD, v_SD), reference, cpu.attention.attention, gpu.attention.attention, gpu_takes)
    return impl(q_TD, k_SD, v_SD, layout, heads, dropout, keys, mask)


def attention_over_runs(
    q_TD: Tensor,
    runs: Runs,
    layout: Layout,
    heads: int,
    dropout: float = 0.0,
    *,
    keys: Layout,
    mask: Mask | None = None,
) -> Tensor:
    """As `attention`, to the last bit, to keys and values that lie in runs of rows.

    It computes no gradients, and only queries for which `ernie.kernels.choose.runs_in_cpp` holds.  Raises UserError if
    the shapes do not fit.
    """
    check_layout(layout, q_TD.shape[0])
    if not keys.sequences == layout.sequences == len(runs.offsets) - 1:
        raise UserError(f"keys has {keys.sequences} sequences: expected {layout.sequences}, as in layout")
    check_layout(keys, int(runs.rows.sum()), "keys")
    check_attention(layout, q_TD.shape[-1], heads, mask)
    check_dropout(dropout)
    return cpu.runs.attention_over_runs(q_TD, runs, layout, heads, dropout, keys, mask)


def reference(
    q_TD: Tensor,
    k_SD: Tensor,
    v_SD: Tensor,
    layout: Layout,
    heads: int,
    dropout: float,
    keys: Layout,
    mask: Mask | None,
) -> Tensor:
    """Reference implementation in plain Paddle, by way of a padded batch."""
    N, L = layout.sequences, layout.longest
    D = q_TD.shape[-1]
    q, k, v = (
        pad(x, x_layout).reshape([N, x_layout.longest, heads, D // heads]).transpose([0, 2, 1, 3])
        for x, x_layout in ((q_TD, layout), (k_SD, keys), (v_SD, keys))
    )
    scores_NHLM = paddle.matmul(q * (1.0 / math.sqrt(D // heads)), k, transpose_y=True)
    if mask is not None or not keys.is_rectangular:
        bias = _bias(layout, keys, mask, heads) if q_TD.place.is_cpu_place() else _bias_on_device(layout, keys, mask)
        scores_NHLM = scores_NHLM + bias.astype(scores_NHLM.dtype)
    weights_NHLM = in_float32(F.softmax)(scores_NHLM, axis=-1)
    if dropout:
        weights_NHLM = F.dropout(weights_NHLM, dropout)
    mixed = paddle.matmul(weights_NHLM, v).transpose([0, 2, 1, 3]).reshape([N * L, D])
    mixed_TD = mixed if layout.is_rectangular else paddle.gather(mixed, on_device(layout.slots))
    if mask is None:
        return mixed_TD
    sees_T = np.minimum(mask.last, np.repeat(keys.lengths, layout.lengths)) > mask.first
    return mixed_TD * paddle.to_tensor(sees_T).astype(mixed_TD.dtype).unsqueeze(-1)


def pad(x_TD: Tensor, layout: Layout) -> Tensor:
    """Scatter packed rows (T, D) into a padded batch (N * L, D), with zeros as padding."""
    if layout.is_rectangular:
        return x_TD
    slots = on_device(layout.slots).unsqueeze(-1)
    return paddle.scatter_nd(slots, x_TD, [layout.sequences * layout.longest, x_TD.shape[-1]])


@lru_cache(maxsize=2)  # all layers need the same one; those of a decoder attend to an encoder as well
def _bias(layout: Layout, keys: Layout, mask: Mask | None, heads: int) -> Tensor:
    """Return the additive mask (N, H, L, M): zero where the query sees the key, a large negative number elsewhere.

    The mask is expanded to its full shape, once for all layers: Paddle's broadcasting addition is many times slower on
    a CPU.
    """
    first_NL1, last_NL1 = _seen(layout, keys, mask)
    position_M = np.arange(keys.longest)
    bias_NLM = np.where((position_M >= first_NL1) & (position_M < last_NL1), 0.0, _MASKED).astype(np.float32)
    return paddle.to_tensor(np.broadcast_to(bias_NLM[:, None], (len(bias_NLM), heads, *bias_NLM.shape[1:])))


@lru_cache(maxsize=2)
def _bias_on_device(layout: Layout, keys: Layout, mask: Mask | None) -> Tensor:
    """As `_bias`, (N, 1, L, M), computed by the device from the two keys between which each query sees."""
    first_NL1, last_NL1 = (paddle.to_tensor(each) for each in _seen(layout, keys, mask))
    position_M = paddle.arange(keys.longest, dtype="int32")
    visible_NLM = paddle.logical_and(position_M >= first_NL1, position_M < last_NL1)
    return ((1.0 - visible_NLM.astype("float32")) * _MASKED).unsqueeze(1)


def _seen(layout: Layout, keys: Layout, mask: Mask | None) -> np.ndarray:
    """Return the first key that each query of a padded batch sees, and the one after the last: (2, N, L, 1) int32."""
    N, L = layout.sequences, layout.longest
    seen_2NL = np.zeros((2, N * L), np.int32)
    seen_2NL[1] = np.repeat(keys.lengths, L)
    if mask is not None:
        seen_2NL[:, layout.slots] = mask.first, np.minimum(mask.last, seen_2NL[1, layout.slots])
    return seen_2NL.reshape(2, N, L, 1)

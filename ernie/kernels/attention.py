"""Attention over packed sequences: no token sees another sequence.

Legend: T packed tokens, N sequences, L the longest, H heads, K size of a head, D = H * K.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor

from ernie.data.batch import Layout

_FAR = -1e4  # added to scores of padding: vanishes after the softmax, in fp16 too


def attention(q_TD: Tensor, k_TD: Tensor, v_TD: Tensor, layout: Layout, heads: int, dropout: float = 0.0) -> Tensor:
    """Scaled dot-product attention within each sequence, (T, D) -> (T, D).

    Vaswani et al. (2017, arXiv 1706.03762), section 3.2.  `dropout` is the probability of dropping an attention
    weight.  This is the reference body: it lays the sequences out as a padded batch and back.
    """
    N, L = layout.sequences, layout.longest
    D = q_TD.shape[-1]
    q, k, v = (_pad(x, layout).reshape([N, L, heads, D // heads]).transpose([0, 2, 1, 3]) for x in (q_TD, k_TD, v_TD))
    scores_NHLL = paddle.matmul(q * (1.0 / math.sqrt(D // heads)), k, transpose_y=True)
    if not layout.is_rectangular:
        scores_NHLL = scores_NHLL + _padding_bias(layout, heads)
    weights_NHLL = F.softmax(scores_NHLL, axis=-1)
    if dropout:
        weights_NHLL = F.dropout(weights_NHLL, dropout)
    mixed = paddle.matmul(weights_NHLL, v).transpose([0, 2, 1, 3]).reshape([N * L, D])
    return mixed if layout.is_rectangular else paddle.gather(mixed, paddle.to_tensor(layout.slots))


def _pad(x_TD: Tensor, layout: Layout) -> Tensor:
    """(T, D) -> (N * L, D), zeros where there is no token."""
    if layout.is_rectangular:
        return x_TD
    slots = paddle.to_tensor(layout.slots).unsqueeze(-1)
    return paddle.scatter_nd(slots, x_TD, [layout.sequences * layout.longest, x_TD.shape[-1]])


@lru_cache(maxsize=1)
def _padding_bias(layout: Layout, heads: int) -> Tensor:
    """(N, H, L, L): zero where the key is a token, far below zero where it is padding.

    Written out in full, once for all layers: Paddle's broadcasting addition is many times slower on a CPU.
    """
    N, L = layout.sequences, layout.longest
    is_padding = np.arange(L) >= layout.lengths[:, None]
    bias_NL = np.where(is_padding, _FAR, 0.0).astype(paddle.get_default_dtype())
    return paddle.to_tensor(np.broadcast_to(bias_NL[:, None, None, :], (N, heads, L, L)))

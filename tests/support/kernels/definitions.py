"""Reference definitions of attention and a layer, with one square matrix over the whole batch, in any precision.

Legend: T packed queries, S packed keys, H heads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor

from ernie.data.batch import Layout
from ernie.kernels.mask import Mask
from ernie.kernels.types import LayerSettings, LayerWeights


def visible(layout: Layout, keys: Layout | None = None, mask: Mask | None = None) -> np.ndarray:
    """(T, S): whether the query attends to the key."""
    keys = keys or layout
    numbers = np.arange(layout.sequences)
    visible_TS = np.repeat(numbers, layout.lengths)[:, None] == np.repeat(numbers, keys.lengths)
    if mask is not None:
        visible_TS &= (keys.positions >= mask.first[:, None]) & (keys.positions < mask.last[:, None])
    return visible_TS


def attention_definition(
    q: Tensor, k: Tensor, v: Tensor, visible_TS: np.ndarray, heads: int, dropout_HTS: np.ndarray | None = None
) -> Tensor:
    """Attention, (T, D) -> (T, D), with its weights multiplied by `dropout_HTS`."""
    q_HTK, k_HSK, v_HSK = (x.reshape([x.shape[0], heads, -1]).transpose([1, 0, 2]) for x in (q, k, v))
    scores_HTS = q_HTK @ k_HSK.transpose([0, 2, 1]) / np.sqrt(q_HTK.shape[-1])
    visible_HTS = paddle.to_tensor(np.broadcast_to(visible_TS, scores_HTS.shape))
    weights_HTS = F.softmax(paddle.where(visible_HTS, scores_HTS, paddle.full_like(scores_HTS, -1e30)))
    weights_HTS = weights_HTS * visible_HTS.astype(q.dtype)
    if dropout_HTS is not None:
        weights_HTS = weights_HTS * _like(q, dropout_HTS)
    return (weights_HTS @ v_HSK).transpose([1, 0, 2]).reshape(q.shape)


def weight_masks(
    layout: Layout, heads: int, mask_of: Callable[..., np.ndarray], keys: Layout | None = None
) -> np.ndarray:
    """(H, T, S): the dropout masks of attention weights; the column of a key is its position in its sequence."""
    keys = keys or layout
    planes = [mask_of(rows=layout.tokens, columns=keys.longest, plane=head) for head in range(heads)]
    return np.stack(planes)[:, :, keys.positions]


def layer_definition(
    x_TD: Tensor,
    weights: LayerWeights,
    visible_TT: np.ndarray,
    settings: LayerSettings,
    masks: LayerMasks | None = None,
) -> Tensor:
    """A Transformer layer, (T, D) -> (T, D)."""
    w, dropout = weights, masks or LayerMasks(None, np.ones(()), np.ones(()))
    q, k, v = x_TD @ w.q + w.q_bias, x_TD @ w.k + w.k_bias, x_TD @ w.v + w.v_bias
    mixed_TD = attention_definition(q, k, v, visible_TT, settings.heads, dropout.weights_HTT)
    branch_TD = (mixed_TD @ w.out + w.out_bias) * _like(x_TD, dropout.after_attention)
    between_TD = F.layer_norm(x_TD + branch_TD, x_TD.shape[-1:], w.gain1, w.offset1, settings.epsilon)
    inner_TF = getattr(F, settings.activation)(between_TD @ w.inner + w.inner_bias)
    branch_TD = (inner_TF @ w.outer + w.outer_bias) * _like(x_TD, dropout.after_feed_forward)
    return F.layer_norm(between_TD + branch_TD, x_TD.shape[-1:], w.gain2, w.offset2, settings.epsilon)


class LayerMasks(NamedTuple):
    """The factors by which the dropouts of a layer multiply."""

    weights_HTT: np.ndarray | None
    after_attention: np.ndarray
    after_feed_forward: np.ndarray


def _like(x: Tensor, values: np.ndarray) -> Tensor:
    return paddle.to_tensor(values.astype(str(x.dtype).split(".")[1]))

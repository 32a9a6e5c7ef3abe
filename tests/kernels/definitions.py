"""What attention and a layer are, written out once more with one square matrix over the whole batch, in any precision.

Legend: T packed queries, S packed keys, H heads.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor

from ernie.data.batch import Layout
from ernie.kernels.mask import Mask

Drop = Callable[[Tensor], Tensor]


def sees(layout: Layout, keys: Layout | None = None, mask: Mask | None = None) -> np.ndarray:
    """(T, S): whether the query sees the key."""
    keys = keys or layout
    numbers = np.arange(layout.sequences)
    seen_TS = np.repeat(numbers, layout.lengths)[:, None] == np.repeat(numbers, keys.lengths)
    if mask is not None:
        seen_TS &= (keys.positions >= mask.first[:, None]) & (keys.positions < mask.last[:, None])
    return seen_TS


def attended(
    q: Tensor, k: Tensor, v: Tensor, seen_TS: np.ndarray, heads: int, kept_HTS: np.ndarray | None = None
) -> Tensor:
    """Attention, (T, D) -> (T, D); its weights times `kept_HTS`."""
    q_HTK, k_HSK, v_HSK = (x.reshape([x.shape[0], heads, -1]).transpose([1, 0, 2]) for x in (q, k, v))
    scores_HTS = q_HTK @ k_HSK.transpose([0, 2, 1]) / np.sqrt(q_HTK.shape[-1])
    seen = paddle.to_tensor(np.broadcast_to(seen_TS, scores_HTS.shape))
    weights_HTS = F.softmax(paddle.where(seen, scores_HTS, paddle.full_like(scores_HTS, -1e30)))
    weights_HTS = weights_HTS * seen.astype(q.dtype)
    if kept_HTS is not None:
        weights_HTS = weights_HTS * paddle.to_tensor(kept_HTS.astype(str(q.dtype).split(".")[1]))
    return (weights_HTS @ v_HSK).transpose([1, 0, 2]).reshape(q.shape)


def kept_weights(layout: Layout, heads: int, kept: Callable[..., np.ndarray], keys: Layout | None = None) -> np.ndarray:
    """(H, T, S): the masks of attention weights, a key's column being its place in its sequence."""
    keys = keys or layout
    planes = [kept(rows=layout.tokens, columns=keys.longest, plane=head) for head in range(heads)]
    return np.stack(planes)[:, :, keys.positions]

"""GPU body of ernie.kernels.attention.  Legend: T packed queries, S packed keys, H heads, K size of a head, D width.

Dao (2023, arXiv 2307.08691) over sequences of several lengths; for masks Wang et al. (2024, arXiv 2410.01359),
FlashMask, to which a packed batch is one sequence whose mask keeps its parts apart.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import paddle
from paddle import Tensor
from paddle.nn.functional.flash_attention import flash_attn_unpadded, flashmask_attention

from ernie.data.batch import Layout
from ernie.kernels.gpu.rows_seen import is_causal, seen_by
from ernie.kernels.mask import Mask
from ernie.kernels.precision import cast, is_low

_LARGEST_HEAD = 128  # above it, what works depends on the kind of GPU


def serves(q_TD: Tensor, heads: int, layout: Layout, keys: Layout, mask: Mask | None) -> bool:
    """Whether there is an operator for this: in half precision, for the usual sizes of a head and masks."""
    if not (q_TD.place.is_gpu_place() and is_low()):
        return False
    size = q_TD.shape[-1] // heads
    fits = size % 8 == 0 and size <= _LARGEST_HEAD
    return fits and (mask is None or _plan(mask, layout, keys) is not None)


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
    """As ernie.kernels.attention.reference, without a square matrix; in the precision in force, and so returned."""
    T, D = q_TD.shape
    q, k, v = (cast(x).reshape([-1, heads, D // heads]) for x in (q_TD, k_SD, v_SD))
    plan = None if mask is None else _plan(mask, layout, keys)
    if isinstance(plan, Tensor):
        mixed = flashmask_attention(q.unsqueeze(0), k.unsqueeze(0), v.unsqueeze(0), plan, dropout=dropout)
        return mixed.reshape([T, D])
    longest, scale = (layout.longest, keys.longest), 1.0 / math.sqrt(D // heads)
    offsets = _offsets(layout), _offsets(keys)
    mixed, _ = flash_attn_unpadded(q, k, v, *offsets, *longest, scale, dropout, causal=plan == "causal")
    return mixed.reshape([T, D])


@lru_cache(maxsize=2)
def _offsets(layout: Layout) -> Tensor:
    return paddle.to_tensor(layout.offsets.astype(np.int32))


@lru_cache(maxsize=1)  # all layers of a model ask for the same
def _plan(mask: Mask, layout: Layout, keys: Layout) -> Tensor | str | None:
    """FlashMask's rows for a mask, (1, 1, S, 2), or "causal", for which it needs none; None where it has no words."""
    if is_causal(mask, layout, keys):
        return "causal"
    rows = seen_by(mask, layout, keys)
    if rows is None:
        return None
    first_S, last_S = rows
    # It asks for the first row below the diagonal that is masked, and the first above it that is not.
    return paddle.to_tensor(np.stack([last_S, first_S], axis=-1)[None, None].astype(np.int32))

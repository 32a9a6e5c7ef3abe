"""GPU implementation of ernie.kernels.attention.  Legend: T packed queries, S packed keys, D width.

FlashAttention-2 (Dao, 2023, arXiv 2307.08691) computes sequences of varying length.  FlashMask (Wang et al., 2024,
arXiv 2410.01359) computes masks: a packed batch is one sequence to it, whose mask keeps its parts apart.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import paddle
from paddle import Tensor
from paddle.device.cuda import get_device_capability
from paddle.nn.functional.flash_attention import flash_attn_unpadded, flashmask_attention

from ernie.data.batch import Layout
from ernie.kernels.mask import Mask
from ernie.kernels.precision import cast, is_low
from ernie.kernels.upload import on_device

_LARGEST_HEAD = 128  # for larger ones, support depends on the GPU
_OLDEST = (8, 0)  # the compute capability of Ampere: FlashAttention-2 has no code for older GPUs
_VERSION = "FLAGS_flash_attn_version"


def supports(width: int, heads: int, layout: Layout, dropout: float, keys: Layout, mask: Mask | None) -> bool:
    """Whether an operator of this GPU takes the arguments.

    It takes half precision, a common head size, and a mask that FlashMask can express.  FlashAttention-3, which a flag
    of Paddle chooses, has no dropout with such a mask.
    """
    if not is_low() or get_device_capability() < _OLDEST:
        return False
    size = width // heads
    if size % 8 or size > _LARGEST_HEAD:
        return False
    plan = "full" if mask is None else _plan(mask, layout, keys)
    return plan is not None and (isinstance(plan, str) or not dropout or paddle.get_flags(_VERSION)[_VERSION] == 2)


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
    """As ernie.kernels.attention.reference, without an attention matrix; computes and returns the active precision."""
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


@lru_cache(maxsize=2)  # of the queries and of the keys
def _offsets(layout: Layout) -> Tensor:
    return on_device(layout.offsets).astype("int32")


@lru_cache(maxsize=2)  # all layers of a model need the same one; those of a decoder attend to an encoder as well
def _plan(mask: Mask, layout: Layout, keys: Layout) -> Tensor | str | None:
    """Return FlashMask's row indices (1, 1, S, 2), "causal" if it needs none, or None if it cannot express the mask."""
    if is_causal(mask, layout, keys):
        return "causal"
    rows = seen_by(mask, layout, keys)
    if rows is None:
        return None
    first_S, last_S = rows
    # FlashMask takes the first masked row below the diagonal and the first unmasked row above it.
    return paddle.to_tensor(np.stack([last_S, first_S], axis=-1)[None, None].astype(np.int32))


def is_causal(mask: Mask, layout: Layout, keys: Layout) -> bool:
    """Whether each token sees exactly itself and all tokens before it."""
    return keys is layout and not mask.first.any() and bool((mask.last == layout.positions + 1).all())


def seen_by(mask: Mask, layout: Layout, keys: Layout) -> tuple[np.ndarray, np.ndarray] | None:
    """Return, for each key, the first query that sees it and the first after it that does not, both (S,).

    Returns None for a mask that this cannot describe: queries and keys of different sequences, a query that does not
    see itself, or a `first` or `last` that decreases from one query of a sequence to the next.
    """
    if keys is not layout:
        return None
    position_T, length_T = layout.positions, np.repeat(layout.lengths, layout.lengths)
    first_T, last_T = mask.first.astype(np.int64), np.minimum(mask.last, length_T)
    sees_itself = (first_T <= position_T) & (position_T < last_T)
    continues = position_T[1:] > 0  # the next token is in the same sequence
    rises = (np.diff(first_T) >= 0) & (np.diff(last_T) >= 0)
    if not (sees_itself.all() and rises[continues].all()):
        return None
    # Counted over the batch, both rise through all of it, as its sequences lie one after the other.
    start_T, token_T = np.arange(layout.tokens) - position_T, np.arange(layout.tokens)
    first_S = np.searchsorted(start_T + last_T, token_T, side="right")
    last_S = np.searchsorted(start_T + first_T, token_T, side="right")
    return first_S, last_S

"""Attention masks by column: which queries see a key.  Legend: T packed queries, S packed keys."""

from __future__ import annotations

import numpy as np

from ernie.data.batch import Layout
from ernie.kernels.mask import Mask


def is_causal(mask: Mask, layout: Layout, keys: Layout) -> bool:
    """Whether each token sees exactly itself and all tokens before it."""
    return keys is layout and not mask.first.any() and bool((mask.last == layout.positions + 1).all())


def seen_by(mask: Mask, layout: Layout, keys: Layout) -> tuple[np.ndarray, np.ndarray] | None:
    """Return, for each key, the first query that sees it and the first after it that does not, both (S,).

    None if that cannot describe the mask: if queries and keys are of different sequences, if a query does not see
    itself, or if `first` or `last` of the mask decreases from one query of a sequence to the next.
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

"""Masks the other way round: which queries see a key.  Legend: T packed queries, S packed keys."""

from __future__ import annotations

import numpy as np

from ernie.data.batch import Layout
from ernie.kernels.mask import Mask


def is_causal(mask: Mask, layout: Layout, keys: Layout) -> bool:
    """Whether each token sees itself and all before it."""
    return keys is layout and not mask.first.any() and bool((mask.last == layout.positions + 1).all())


def seen_by(mask: Mask, layout: Layout, keys: Layout) -> tuple[np.ndarray, np.ndarray] | None:
    """For each key the first query that sees it and the first after it that does not, (S,) both.

    None where that does not say it all: where queries and keys are of other sequences, a query does not see itself,
    or one sees less far back, or less far ahead, than a query before it.
    """
    if keys is not layout:
        return None
    place_T, length_T = layout.positions, np.repeat(layout.lengths, layout.lengths)
    first_T, last_T = mask.first.astype(np.int64), np.minimum(mask.last, length_T)
    sees_itself = (first_T <= place_T) & (place_T < last_T)
    goes_on = place_T[1:] > 0  # the token after this one is of the same sequence
    rises = (np.diff(first_T) >= 0) & (np.diff(last_T) >= 0)
    if not (sees_itself.all() and rises[goes_on].all()):
        return None
    # Counted in the batch, both rise through all of it, for the sequences lie one after the other.
    start_T, token_T = np.arange(layout.tokens) - place_T, np.arange(layout.tokens)
    first_S = np.searchsorted(start_T + last_T, token_T, side="right")
    last_S = np.searchsorted(start_T + first_T, token_T, side="right")
    return first_S, last_S

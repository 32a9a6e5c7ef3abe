"""Overlapping windows over passages longer than a sample, as in BERT for SQuAD (Devlin et al., 2019, section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Window(NamedTuple):
    """The view of one sample: the character spans (n, 2) of its passage tokens, and where these begin in the sample.

    `best` (n,) marks the tokens for which this window has more context than any other.
    """

    offsets: np.ndarray
    begins: int
    best: np.ndarray


def window_starts(tokens: int, size: int, stride: int) -> list[int]:
    """Return where the windows of a passage begin, each `size` tokens long and overlapping the next by `stride`.

    The last window ends with the passage.
    """
    starts = [0]
    while starts[-1] + size < tokens:
        starts.append(starts[-1] + size - stride)
    return starts


def has_most_context(starts: Sequence[int], i: int, size: int, tokens: int) -> np.ndarray:
    """Return for each token of window `i` whether it is the first of the windows with the most context around it.

    BERT prefers longer windows, too; here none is longer than an earlier one.
    """
    stops = [min(start + size, tokens) for start in starts]
    positions = np.arange(starts[i], stops[i])

    def context(j: int) -> np.ndarray:
        left, right = positions - starts[j], stops[j] - 1 - positions
        return np.where((left >= 0) & (right >= 0), np.minimum(left, right), -1)

    own = context(i)
    reach = size // (starts[1] - starts[0]) + 1 if len(starts) > 1 else 0  # windows further away do not overlap
    near = range(max(0, i - reach), min(len(starts), i + reach + 1))
    overlap = [j for j in near if j != i and starts[j] < stops[i] and stops[j] > starts[i]]
    return np.all([own > context(j) if j < i else own >= context(j) for j in overlap], axis=0) & (own >= 0)


def touched(offsets: np.ndarray, start: int, end: int) -> tuple[int, int] | None:
    """Return the first and the last token that overlap the characters [start, end); None if there is none."""
    found = np.flatnonzero((offsets[:, 0] < end) & (offsets[:, 1] > start))
    return (int(found[0]), int(found[-1])) if len(found) else None

"""A passage longer than a sample, read in windows that overlap, as in BERT's for SQuAD (Devlin et al., 2019, section
4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Window(NamedTuple):
    """One sample's view: the characters (n, 2) of the passage's tokens in it, and where they begin in the sample.

    `best` (n,) says for which of them this window has the most context of all windows.
    """

    offsets: np.ndarray
    begins: int
    best: np.ndarray


def window_starts(tokens: int, room: int, stride: int) -> list[int]:
    """Where the windows of a passage begin, each `room` tokens long, two of them sharing `stride`.

    The last one ends with the passage.
    """
    starts = [0]
    while starts[-1] + room < tokens:
        starts.append(starts[-1] + room - stride)
    return starts


def has_most_context(starts: Sequence[int], i: int, room: int, tokens: int) -> np.ndarray:
    """For each token of window `i`, whether no other window shows more of what stands around it."""
    stops = [min(start + room, tokens) for start in starts]
    places = np.arange(starts[i], stops[i])

    def context(j: int) -> np.ndarray:
        left, right = places - starts[j], stops[j] - 1 - places
        inside = (left >= 0) & (right >= 0)
        return np.where(inside, np.minimum(left, right) + 0.01 * (stops[j] - starts[j]), -1.0)

    own = context(i)
    overlap = [j for j in range(len(starts)) if j != i and starts[j] < stops[i] and stops[j] > starts[i]]
    return np.all([own > context(j) if j < i else own >= context(j) for j in overlap], axis=0) & (own >= 0)


def touched(offsets: np.ndarray, start: int, end: int) -> tuple[int, int] | None:
    """The first and the last token that stand for any of the characters [start, end)."""
    found = np.flatnonzero((offsets[:, 0] < end) & (offsets[:, 1] > start))
    return (int(found[0]), int(found[-1])) if len(found) else None

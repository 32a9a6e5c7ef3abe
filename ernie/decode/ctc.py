"""Reading tokens off the scores of CTC: each vector tells one token, or that nothing new is said.

Legend: T vectors, V vocabulary.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Spike(NamedTuple):
    """A token, the vector at which it is first told, and how probable it is there."""

    token: int
    vector: int
    probability: float


def greedy(scores_TV: np.ndarray, blank: int, last: int | None = None, first: int = 0) -> list[Spike]:
    """The likeliest token of each vector (Graves et al., 2006, section 3.2): repeated ones count once, blanks not.

    Of sound that comes in pieces, `last` is what the vector before these told, and `first` their number.
    """
    best = scores_TV.argmax(1)
    before = np.concatenate([[blank if last is None else last], best[:-1]])
    found = np.flatnonzero((best != blank) & (best != before))
    highest = scores_TV.max(1, keepdims=True)
    sums = np.exp(scores_TV - highest).sum(1)
    return [Spike(int(best[t]), first + int(t), float(1 / sums[t])) for t in found]

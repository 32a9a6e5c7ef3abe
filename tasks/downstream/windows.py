"""Overlapping windows over texts longer than a sample, as in BERT for SQuAD (Devlin et al., 2019, section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from ernie.config import check_least


@dataclass(frozen=True)
class WindowConfig:
    """How a text of more than `max_len` tokens is read: in windows, whose logits are pooled before the loss.

    `pooling` takes the mean of each logit over the windows or its largest value.  The mean is also that of the windows'
    pooled vectors, since the layer after them is linear (Sun et al., 2019, "How to Fine-Tune BERT for Text
    Classification", arXiv 1905.05583, section 5.3.1).  The maximum finds what one passage shows (Dai and Callan, 2019,
    "Deeper Text Understanding for IR with Contextual Neural Language Modeling", arXiv 1905.09217, section 3).

    `stride` is the overlap of two windows in tokens.  `most` is how many windows of a text are read at most: from the
    first to the last one, evenly spaced.  The tokens of the others are cut out.  With 0 there is no limit.
    """

    pooling: Literal["mean", "max"] = "mean"
    stride: int = 0
    most: int = 0

    def __post_init__(self) -> None:
        check_least(self, stride=0, most=0)

    def of(self, tokens: int, size: int) -> list[tuple[int, int]]:
        """Return the first token of each window that is read of a text, and the one behind its last."""
        windows = windows_of(tokens, size, self.stride)
        if not self.most or len(windows) <= self.most:
            return windows
        return [windows[i] for i in np.linspace(0, len(windows) - 1, self.most).round().astype(int)]

    def reading(self, max_len: int) -> str:
        """Say how the logits of windows become those of a text."""
        over = f", each overlapping the next by {self.stride}" if self.stride else ""
        pooled = "mean of each logit" if self.pooling == "mean" else "largest value of each logit"
        return f"A longer text has windows of at most {max_len} tokens{over}; its logits are the {pooled} over them."


class Window(NamedTuple):
    """The view of one sample: the character spans (n, 2) of its passage tokens, and where these begin in the sample.

    `best` (n,) marks the tokens for which this window has more context than any other.
    """

    offsets: np.ndarray
    begins: int
    best: np.ndarray


def windows_of(tokens: int, size: int, stride: int) -> list[tuple[int, int]]:
    """Return the first token of each window of a text, and the one behind its last.

    Each has `size` tokens and overlaps the next by `stride`; the last one ends with the text.
    """
    starts = [0]
    while starts[-1] + size < tokens:
        starts.append(starts[-1] + size - stride)
    return [(start, min(start + size, tokens)) for start in starts]


def with_most_context(windows: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return for each token of a text the number of the window with the most context around it, the first of equal
    ones.

    BERT prefers longer windows, too; here none is longer than an earlier one.
    """
    tokens = windows[-1][1]
    most, found = np.full(tokens, -1), np.zeros(tokens, np.int64)
    for number, (start, stop) in enumerate(windows):
        positions = np.arange(start, stop)
        context = np.minimum(positions - start, stop - 1 - positions)
        more = positions[context > most[start:stop]]
        found[more], most[more] = number, context[more - start]
    return found


def touched(offsets: np.ndarray, start: int, end: int) -> tuple[int, int] | None:
    """Return the first and the last token that overlap the characters [start, end); None if there is none."""
    found = np.flatnonzero((offsets[:, 0] < end) & (offsets[:, 1] > start))
    return (int(found[0]), int(found[-1])) if len(found) else None

"""Segmentation of a sound stream at CTC spikes, as in SMLTA (Baidu, 2019).

Patent US10854193B2: CTC spikes truncate the stream, and attention reads each segment.  A segment ends at a spike; the
decoder also sees a few vectors before and after it.  Where CTC predicts too many or too few tokens, a segment holds no
token, or two.

Legend: T vectors, V vocabulary, L labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ernie.decode.ctc import log_probabilities

MAX_TOKENS = 2  # in a segment
_NEAR = 1  # vectors between a label's aligned position and the spike that predicts it


class Window(NamedTuple):
    """The vectors visible for a segment, [first, last); the segment itself is [begin, end)."""

    first: int
    begin: int
    end: int
    last: int

    @property
    def parts(self) -> np.ndarray:
        """The position of each visible vector: before the segment (0), inside (1) or after it (2)."""
        return np.repeat([0, 1, 2], np.diff(self))

    def clipped(self, vectors: int) -> Window:
        """Return the window limited to the first `vectors` vectors."""
        return self._replace(last=min(self.last, vectors))


@dataclass(frozen=True)
class Segmentation:
    """Segments of at most `longest` vectors, each seen with `back` vectors before it and `ahead` after it."""

    back: int
    ahead: int
    longest: int

    def window(self, previous_cut: int, cut: int) -> Window:
        """Return the window of the segment that follows `previous_cut` (-1 at the beginning) and ends with `cut`."""
        begin, end = previous_cut + 1, cut + 1
        return Window(max(0, begin - self.back), begin, end, end + self.ahead)

    def next_cut(self, previous_cut: int, spikes: Sequence[int], vectors: int, ended: bool) -> int | None:
        """Return where the segment after `previous_cut` ends, given the spikes of the first `vectors` vectors.

        None if it cannot be decided yet, or no vectors are left.
        """
        spike = next((spike for spike in spikes if spike > previous_cut), None)
        if spike is not None and spike <= previous_cut + self.longest:
            return spike
        if vectors > previous_cut + self.longest:
            return previous_cut + self.longest
        return vectors - 1 if ended and vectors - 1 > previous_cut else None

    def training_cuts(self, spikes: Sequence[int], positions: Sequence[int], vectors: int) -> list[tuple[int, int]]:
        """Return the cuts of a training sound, each with the number of labels in the segment that it ends.

        `positions` (L,) are the aligned positions of the labels.  A label with a spike nearby ends its segment there;
        one that CTC missed is read with the next label, and a spike near no label ends a segment without labels.
        """
        free, waiting = set(spikes), 0
        label_counts: dict[int, int] = {}
        for number, position in enumerate(positions, 1):
            following = positions[number] if number < len(positions) else None
            near = [cut for cut in (position, position - _NEAR, position + _NEAR) if cut in free]
            usable = [cut for cut in near if following is None or cut < following]  # not the next label's own
            waiting += 1
            if not usable and waiting < MAX_TOKENS and following is not None:
                continue
            cut = usable[0] if usable else position
            free.discard(cut)
            label_counts[cut] = waiting
            waiting = 0
        all_spikes = sorted({*label_counts, *free})
        cuts: list[tuple[int, int]] = []
        while (end := self.next_cut(cuts[-1][0] if cuts else -1, all_spikes, vectors, ended=True)) is not None:
            cuts.append((end, label_counts.get(end, 0)))
        return cuts

    def windows(self, cuts: Sequence[int], vectors: int) -> list[Window]:
        """Return the windows of consecutive segments that end at `cuts`, in a sound of `vectors` vectors."""
        whole = [self.window(previous, cut) for previous, cut in zip([-1, *cuts[:-1]], cuts, strict=True)]
        return [window.clipped(vectors) for window in whole]


def align(scores_TV: np.ndarray, labels: Sequence[int], blank: int) -> list[int]:
    """Return where each label is first emitted in the most likely CTC alignment (Viterbi), (L,).

    Raises ValueError if there are fewer vectors than the labels need.
    """
    log_TV = log_probabilities(scores_TV)
    states = np.array([blank, *(state for label in labels for state in (label, blank))])
    S = len(states)
    skips = np.zeros(S, bool)
    skips[2:] = (states[2:] != blank) & (states[2:] != states[:-2])
    best = np.full(S, -np.inf)
    best[:2] = log_TV[0, states[:2]]
    steps = np.zeros((len(log_TV), S), np.int64)  # how many states back the best predecessor of each state is
    for t, log_V in enumerate(log_TV[1:], 1):
        scores = np.full((3, S), -np.inf)
        scores[0], scores[1, 1:] = best, best[:-1]
        scores[2, 2:] = np.where(skips[2:], best[:-2], -np.inf)
        steps[t] = scores.argmax(0)
        best = scores.max(0) + log_V[states]
    state = S - 1 if S == 1 or best[-1] >= best[-2] else S - 2
    if best[state] == -np.inf:
        raise ValueError(f"{len(log_TV)} vectors are fewer than {len(labels)} labels need")
    first = {}
    for t in range(len(log_TV) - 1, -1, -1):
        first[state] = t
        state -= steps[t, state]
    return [first[2 * number + 1] for number in range(len(labels))]

"""Where a stream of sound is cut into pieces: at the spikes of CTC, as SMLTA does it (Baidu, 2019).

Patent US10854193B2: spikes of CTC truncate the stream, and attention reads each piece.  A piece ends at a spike; what
looks at it also sees a few vectors before and behind.  Where CTC has heard too much or too little, a piece holds no
token, or two.

Legend: T vectors, V vocabulary, L labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ernie.decode.ctc import log_probabilities

MOST = 2  # tokens of a piece
_NEAR = 1  # vectors between a label's best place and the spike that told it


class Window(NamedTuple):
    """Seen of a piece are the vectors from `first` to before `last`; its own are those from `begin` to before `end`."""

    first: int
    begin: int
    end: int
    last: int

    @property
    def parts(self) -> np.ndarray:
        """Where each vector that is seen lies: before the piece (0), within (1) or behind it (2)."""
        return np.repeat([0, 1, 2], np.diff(self))

    def within(self, vectors: int) -> Window:
        """What there is of it where there are so many vectors and no more."""
        return self._replace(last=min(self.last, vectors))


@dataclass(frozen=True)
class Cutting:
    """Pieces are seen with `back` vectors before them and `ahead` behind; none is longer than `longest` vectors."""

    back: int
    ahead: int
    longest: int

    def window(self, before: int, cut: int) -> Window:
        """What is seen of the piece that follows the cut `before` (-1 at the beginning) and ends with `cut`."""
        begin, end = before + 1, cut + 1
        return Window(max(0, begin - self.back), begin, end, end + self.ahead)

    def following(self, before: int, spikes: Sequence[int], vectors: int, ended: bool) -> int | None:
        """Where the piece after the cut `before` ends, as far as is known of so many vectors with these spikes."""
        spike = next((spike for spike in spikes if spike > before), None)
        if spike is not None and spike <= before + self.longest:
            return spike
        if vectors > before + self.longest:
            return before + self.longest
        return vectors - 1 if ended and vectors - 1 > before else None

    def taught(self, spikes: Sequence[int], places: Sequence[int], vectors: int) -> list[tuple[int, int]]:
        """The cuts of a sound to learn from, and how many of its labels each piece has.

        `places` (L,) are where the labels are best told.  A label that a spike is near ends its piece there; one that
        CTC has not heard is read with the next one, and a spike that is near no label ends a piece without any.
        """
        free, waiting = set(spikes), 0
        found: dict[int, int] = {}
        for number, place in enumerate(places, 1):
            following = places[number] if number < len(places) else None
            near = [cut for cut in (place, place - _NEAR, place + _NEAR) if cut in free]
            reached = [cut for cut in near if following is None or cut < following]  # not the next label's own
            waiting += 1
            if not reached and waiting < MOST and following is not None:
                continue
            cut = reached[0] if reached else place
            free.discard(cut)
            found[cut] = waiting
            waiting = 0
        every = sorted({*found, *free})
        cuts: list[tuple[int, int]] = []
        while (end := self.following(cuts[-1][0] if cuts else -1, every, vectors, ended=True)) is not None:
            cuts.append((end, found.get(end, 0)))
        return cuts

    def windows(self, cuts: Sequence[int], vectors: int) -> list[Window]:
        """What is seen of each of some pieces, one after the other, of so many vectors."""
        whole = [self.window(before, cut) for before, cut in zip([-1, *cuts[:-1]], cuts, strict=True)]
        return [window.within(vectors) for window in whole]


def align(scores_TV: np.ndarray, labels: Sequence[int], blank: int) -> list[int]:
    """Where each label is first told in the likeliest of all alignments (Viterbi), (L,).

    Raises ValueError where there are fewer vectors than the labels need.
    """
    log_TV = log_probabilities(scores_TV)
    states = np.array([blank, *(state for label in labels for state in (label, blank))])
    S = len(states)
    skips = np.zeros(S, bool)
    skips[2:] = (states[2:] != blank) & (states[2:] != states[:-2])
    best = np.full(S, -np.inf)
    best[:2] = log_TV[0, states[:2]]
    steps = np.zeros((len(log_TV), S), np.int64)  # how many states each one was reached over
    for t, log_V in enumerate(log_TV[1:], 1):
        ways = np.full((3, S), -np.inf)
        ways[0], ways[1, 1:] = best, best[:-1]
        ways[2, 2:] = np.where(skips[2:], best[:-2], -np.inf)
        steps[t] = ways.argmax(0)
        best = ways.max(0) + log_V[states]
    state = S - 1 if S == 1 or best[-1] >= best[-2] else S - 2
    if best[state] == -np.inf:
        raise ValueError(f"{len(log_TV)} vectors are fewer than {len(labels)} labels need")
    first = {}
    for t in range(len(log_TV) - 1, -1, -1):
        first[state] = t
        state -= steps[t, state]
    return [first[2 * number + 1] for number in range(len(labels))]

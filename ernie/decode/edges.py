"""Where in a sound each token begins and ends: CTC says that a token was heard, often well after its beginning.

Graves et al., 2006, section 6: CTC learns labels, not their boundaries.  A boundary between two tokens is therefore the
longest quiet stretch of the sound between the beginning of one and the vector that predicts the other; where words run
together, the quietest frame.  Only frames up to the present are needed, so that streams have the same times as files.

Legend: F frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ernie.audio.lengths import STRIDE
from ernie.decode.ctc import Spike

_QUIET = 0.25  # of the range from quiet to loud: frames below are quiet
_SHORTEST = 6  # frames of a token at least
_EARLIEST = 150  # frames before a vector at which its token may begin
_KEPT = 800  # frames whose loudness is remembered: more than a beam waits, and _EARLIEST more
_SILENCE = 150  # frames after a token's vector after which its end is settled
_PAUSE = 20  # frames of a quiet stretch that ends the last token even if something sounds after it


@dataclass(frozen=True, eq=False)
class Edges:
    """The loudness of the last frames of a sound, of `count` in all, and where its last token lies.

    That token begins at the frame `begin` and was predicted at `spike`, (-1, -1) if there is none; `settled` is the
    frame at which it ends, once that is known.
    """

    loudness: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    count: int = 0
    begin: int = -1
    spike: int = -1
    settled: int = -1

    def heard(self, loudness_F: np.ndarray) -> Edges:
        """Return the edges after more frames, of which this is the `loudness` (see `ernie.audio.features`)."""
        settles = self.spike + _SILENCE - self.count
        if self.spike >= 0 and self.settled < 0 and len(loudness_F) >= settles:  # at the same frame however they come
            first = self._with(loudness_F[: max(0, settles)])
            return replace(first, settled=first.end)._with(loudness_F[max(0, settles) :])
        return self._with(loudness_F)

    def _with(self, loudness_F: np.ndarray) -> Edges:
        loudness = np.concatenate([self.loudness, loudness_F])[-_KEPT:]
        return replace(self, loudness=loudness, count=self.count + len(loudness_F))

    def placed(self, spikes: Sequence[Spike]) -> tuple[Edges, list[Spike]]:
        """Return tokens with the frames at which each begins and what was before it ends, and the edges after them."""
        begin, last, settled, placed = self.begin, self.spike, self.settled, list[Spike]()
        for spike in spikes:
            at = min(spike.vector * STRIDE, self.count - 1)
            before_at = max(0, at - _EARLIEST) if begin < 0 else max(begin + _SHORTEST, at - _EARLIEST)
            first = max(before_at, self.count - len(self.loudness))
            if first >= at:  # tokens of one moment, such as those of a word
                quiet = begin = max(begin, at)
            else:
                quiet, begin = (first + edge for edge in _quietest(self._between(first, at + 1)))
            end = quiet if settled < 0 else min(settled, begin)
            placed.append(Spike(spike.token, spike.vector, spike.probability, begin, end))
            last, settled = max(at, begin), -1
        return (replace(self, begin=begin, spike=last, settled=settled) if placed else self), placed

    @property
    def end(self) -> int:
        """The frame at which the last token ends, judged by what has been heard so far; 0 if there is no token."""
        if self.settled >= 0 or self.begin < 0:
            return max(0, self.settled)
        first = max(self.begin + _SHORTEST, self.count - len(self.loudness))
        if first >= self.count:
            return self.count
        quiet = _quiet_stretches(self._between(first, self.count))
        if quiet and first + quiet[-1][1] == self.count:
            return first + quiet[-1][0]
        later = [begin for begin, end in quiet if end - begin >= _PAUSE and first + end > self.spike]
        return first + later[0] if later else self.count

    def _between(self, first: int, last: int) -> np.ndarray:
        before = self.count - len(self.loudness)
        return self.loudness[first - before : last - before]


def placed(spikes: Sequence[Spike], loudness_F: np.ndarray) -> tuple[list[Spike], int]:
    """Return the tokens of a whole sound with the frames at which they begin, and the frame at which the last ends."""
    edges, found, heard = Edges(), [], 0
    for spike in spikes:
        now = STRIDE * (spike.vector + 1)
        edges, own = edges.heard(loudness_F[heard:now]).placed([spike])
        heard = max(heard, now)
        found += own
    return found, edges.heard(loudness_F[heard:]).end


def _quietest(loudness: np.ndarray) -> tuple[int, int]:
    """Return the longest quiet stretch that is followed by something loud, or twice the quietest frame."""
    inside = [stretch for stretch in _quiet_stretches(loudness) if stretch[1] < len(loudness)]
    if inside:
        return max(inside, key=lambda stretch: (stretch[1] - stretch[0], stretch[0]))
    quietest = int(loudness.argmin())
    return quietest, quietest


def _quiet_stretches(loudness: np.ndarray) -> list[tuple[int, int]]:
    """Return the stretches [begin, end) of quiet frames, in order."""
    ordered, twentieth = np.sort(loudness), len(loudness) // 20
    low, high = ordered[twentieth], ordered[-1 - twentieth]
    edges = np.flatnonzero(np.diff(np.concatenate([[False], loudness <= low + _QUIET * (high - low), [False]])))
    return list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))

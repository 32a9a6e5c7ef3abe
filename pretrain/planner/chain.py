"""Cut a model, a chain of pieces, into the stages of a pipeline: the exact optimum by dynamic programming.

With stages that take c_1 ... c_S for a micro-batch, forward and backward, n micro-batches take

    sum of all c + (n - 1) max of all c

in the order "one forward, one backward" (Narayanan et al., 2021, arXiv 2104.04473, section 2.2.1, for equal stages).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """The cost of one piece of a model.

    A micro-batch takes `seconds`, forward and backward.  Weights, gradients and moments take `state` bytes, and the
    activations of each micro-batch in flight take `kept` bytes.  Sending the output to the next stage, and receiving
    its gradient, takes `sent` seconds.
    """

    seconds: float
    state: float = 0.0
    kept: float = 0.0
    sent: float = 0.0


@dataclass(frozen=True)
class Partition:
    """The index of each stage's first piece, starting with 0, and the seconds of a step."""

    starts: tuple[int, ...]
    seconds: float

    def sizes(self, pieces: int) -> list[int]:
        """The number of pieces in each stage, of `pieces` in all."""
        return [end - start for start, end in zip(self.starts, (*self.starts[1:], pieces), strict=True)]


def best_partition(
    pieces: Sequence[Piece], stages: int, micro_batches: int, memory: float = math.inf
) -> Partition | None:
    """Cut the chain into `stages` stages that each fit into `memory` bytes, the fastest way; None when no way fits.

    For each possible time of the slowest stage, finds the least total time; the best of these is the optimum.
    """
    chain = _Chain(pieces, stages, micro_batches, memory)
    best: Partition | None = None
    for longest in chain.lengths():
        # A slower stage cannot do better: the stages together take at least as long as all the work.
        if best is not None and chain.work + (micro_batches - 1) * longest >= best.seconds:
            break
        starts = chain.shortest(longest)
        if starts is not None:
            seconds = chain.seconds(starts)
            if best is None or seconds < best.seconds:
                best = Partition(starts, seconds)
    return best


def partition(
    pieces: Sequence[Piece], starts: tuple[int, ...], micro_batches: int, memory: float = math.inf
) -> Partition | None:
    """The partition with the given `starts`; None when a stage does not fit into `memory` bytes."""
    chain = _Chain(pieces, len(starts), micro_batches, memory)
    return Partition(starts, chain.seconds(starts)) if chain.fits(starts) else None


class _Chain:
    """Prefix sums over the pieces of a chain.  A stage consists of pieces `first` to `last`, `last` excluded."""

    def __init__(self, pieces: Sequence[Piece], stages: int, micro_batches: int, memory: float):
        self._pieces, self._stages, self._micro_batches, self._memory = pieces, stages, micro_batches, memory
        self._seconds, self._state, self._kept = (
            _prefix_sums([getattr(piece, name) for piece in pieces]) for name in ("seconds", "state", "kept")
        )
        self.work = self._seconds[-1]

    def stage(self, first: int, last: int) -> float:
        """The seconds that a stage takes for a micro-batch."""
        sent = self._pieces[last - 1].sent if last < len(self._pieces) else 0.0
        return self._seconds[last] - self._seconds[first] + sent

    def fits(self, starts: Sequence[int]) -> bool:
        ends = (*starts[1:], len(self._pieces))
        return all(self._stage_fits(k, *span) for k, span in enumerate(zip(starts, ends, strict=True)))

    def _stage_fits(self, stage: int, first: int, last: int) -> bool:
        in_flight = min(self._micro_batches, self._stages - stage)
        state, kept = self._state[last] - self._state[first], self._kept[last] - self._kept[first]
        return state + in_flight * kept <= self._memory

    def seconds(self, starts: Sequence[int]) -> float:
        """The seconds of a step with these stages."""
        ends = (*starts[1:], len(self._pieces))
        stages = [self.stage(*span) for span in zip(starts, ends, strict=True)]
        return sum(stages) + (self._micro_batches - 1) * max(stages)

    def lengths(self) -> list[float]:
        """The possible times of the slowest stage, ascending: none below the slowest piece or an even share."""
        count = len(self._pieces)
        least = max(max(piece.seconds for piece in self._pieces), self.work / self._stages) * (1 - 1e-12)
        return sorted({s for i in range(count) for j in range(i + 1, count + 1) if (s := self.stage(i, j)) >= least})

    def shortest(self, longest: float) -> tuple[int, ...] | None:
        """The starts of the stages with the least total time, where no stage takes longer than `longest`."""
        count = len(self._pieces)
        limit = longest * (1 + 1e-12)
        # sums[i]: the least total of this and all later stages when it starts at piece i; following[i]: where the next
        # stage starts then; choices: `following` of each stage, last stage first.
        sums = [math.inf] * count + [0.0]
        choices: list[list[int]] = []
        for stage in reversed(range(self._stages)):
            totals, following = [math.inf] * (count + 1), [0] * (count + 1)
            for first in range(count - 1, -1, -1):
                for last in range(first + 1, count + 1):
                    seconds = self.stage(first, last)
                    if self._seconds[last] - self._seconds[first] > limit:
                        break
                    total = seconds + sums[last]
                    if seconds <= limit and total < totals[first] and self._stage_fits(stage, first, last):
                        totals[first], following[first] = total, last
            sums = totals
            choices.append(following)
        if math.isinf(sums[0]):
            return None
        starts, start = [], 0
        for following in reversed(choices):
            starts.append(start)
            start = following[start]
        return tuple(starts)


def _prefix_sums(values: Sequence[float]) -> list[float]:
    sums = [0.0]
    for value in values:
        sums.append(sums[-1] + value)
    return sums

"""How to cut a model into the stages of a pipeline: a chain of pieces, exactly, by dynamic programming.

With stages that take c_1 ... c_S for a micro-batch, forward and backward, n of them take

    sum of all c + (n - 1) max of all c

in the order "one forward, one backward" (Narayanan et al., 2021, arXiv 2104.04473, section 2.2.1, for equal ones).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Piece:
    """What one piece of a model takes: `seconds` for a micro-batch, forward and backward; `state` bytes for weights
    and what belongs to them; `kept` bytes for each micro-batch on its way; `sent` seconds to hand its output on, there
    and back."""

    seconds: float
    state: float = 0.0
    kept: float = 0.0
    sent: float = 0.0


@dataclass(frozen=True)
class Partition:
    """Where the stages begin, the first at 0, and the seconds that a step takes."""

    starts: tuple[int, ...]
    seconds: float

    def sizes(self, pieces: int) -> list[int]:
        """How many pieces each stage has."""
        return [end - start for start, end in zip(self.starts, (*self.starts[1:], pieces), strict=True)]


def best_partition(
    pieces: Sequence[Piece], stages: int, micro_batches: int, memory: float = math.inf
) -> Partition | None:
    """The fastest way to cut the chain into so many stages that each fits into `memory` bytes; None when none does.

    For each possible longest stage the shortest sum is found; the best of these is the best of all.
    """
    chain = _Chain(pieces, stages, micro_batches, memory)
    best: Partition | None = None
    for longest in chain.lengths():
        # Longer ones cannot be better: the other stages take as long at least as all the work.
        if best is not None and chain.work + (micro_batches - 1) * longest >= best.seconds:
            break
        found = chain.shortest(longest)
        if found is not None:
            seconds = chain.seconds(found)
            if best is None or seconds < best.seconds:
                best = Partition(found, seconds)
    return best


def partition(
    pieces: Sequence[Piece], starts: tuple[int, ...], micro_batches: int, memory: float = math.inf
) -> Partition | None:
    """The chain as it is cut by these beginnings; None when that does not fit."""
    chain = _Chain(pieces, len(starts), micro_batches, memory)
    return Partition(starts, chain.seconds(starts)) if chain.fits(starts) else None


class _Chain:
    """Sums over the pieces of a chain.  A stage is pieces `first` to `last`, the latter left out."""

    def __init__(self, pieces: Sequence[Piece], stages: int, micro_batches: int, memory: float):
        self._pieces, self._stages, self._micro_batches, self._memory = pieces, stages, micro_batches, memory
        self._seconds, self._state, self._kept = (
            _sums([getattr(piece, name) for piece in pieces]) for name in ("seconds", "state", "kept")
        )
        self.work = self._seconds[-1]

    def stage(self, first: int, last: int) -> float:
        """The seconds of a stage for a micro-batch."""
        sent = self._pieces[last - 1].sent if last < len(self._pieces) else 0.0
        return self._seconds[last] - self._seconds[first] + sent

    def fits(self, starts: Sequence[int]) -> bool:
        ends = (*starts[1:], len(self._pieces))
        return all(self._stage_fits(k, *where) for k, where in enumerate(zip(starts, ends, strict=True)))

    def _stage_fits(self, stage: int, first: int, last: int) -> bool:
        held = min(self._micro_batches, self._stages - stage)
        state, kept = self._state[last] - self._state[first], self._kept[last] - self._kept[first]
        return state + held * kept <= self._memory

    def seconds(self, starts: Sequence[int]) -> float:
        """The seconds of a step."""
        ends = (*starts[1:], len(self._pieces))
        stages = [self.stage(*where) for where in zip(starts, ends, strict=True)]
        return sum(stages) + (self._micro_batches - 1) * max(stages)

    def lengths(self) -> list[float]:
        """What a stage may take, ascending; not shorter than the longest piece and than an even share."""
        count = len(self._pieces)
        least = max(max(piece.seconds for piece in self._pieces), self.work / self._stages) * (1 - 1e-12)
        return sorted({s for i in range(count) for j in range(i + 1, count + 1) if (s := self.stage(i, j)) >= least})

    def shortest(self, longest: float) -> tuple[int, ...] | None:
        """Where the stages begin that have the least sum, none of them above `longest`."""
        count = len(self._pieces)
        limit = longest * (1 + 1e-12)
        # sums[i]: of the stages from this one on, when it begins at piece i; begun[stage][i]: where the next begins.
        sums = [math.inf] * count + [0.0]
        begun: list[list[int]] = []
        for stage in reversed(range(self._stages)):
            new, following = [math.inf] * (count + 1), [0] * (count + 1)
            for first in range(count - 1, -1, -1):
                for last in range(first + 1, count + 1):
                    seconds = self.stage(first, last)
                    if self._seconds[last] - self._seconds[first] > limit:
                        break
                    total = seconds + sums[last]
                    if seconds <= limit and total < new[first] and self._stage_fits(stage, first, last):
                        new[first], following[first] = total, last
            sums = new
            begun.append(following)
        if math.isinf(sums[0]):
            return None
        starts, place = [], 0
        for following in reversed(begun):
            starts.append(place)
            place = following[place]
        return tuple(starts)


def _sums(values: Sequence[float]) -> list[float]:
    found = [0.0]
    for value in values:
        found.append(found[-1] + value)
    return found

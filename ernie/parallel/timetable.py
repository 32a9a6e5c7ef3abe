"""The order in which the processes of a pipeline compute, without computing: for checks before a run, and for planning.

One forward and one backward at a time, or with several pieces a process that take turns (Narayanan et al., 2021, arXiv
2104.04473, sections 2.2.1 and 2.2.2), in the order of Paddle's fleet, which a test compares with its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Action(NamedTuple):
    """The forward or backward pass of a micro-batch through one of a stage's pieces."""

    forward: bool
    micro_batch: int
    piece: int = 0

    def __str__(self) -> str:
        return f"{'forward' if self.forward else 'backward'} of micro-batch {self.micro_batch}, piece {self.piece}"


def timetable(stage: int, stages: int, micro_batches: int, pieces: int = 1) -> list[Action]:
    """What a stage does, in order.  With several `pieces` there are at least two micro-batches for each stage."""
    if pieces == 1:
        ahead = min(stages - stage - 1, micro_batches)
        passes = [(k, 0) for k in range(micro_batches)]
        return _alternating(passes, passes, ahead)
    first = micro_batches % stages + stages  # micro-batches that a piece takes in its first turn
    turns = [(start, first if start == 0 else stages) for start in (0, *range(first, micro_batches, stages))]
    forward = [(start + k, piece) for start, size in turns for piece in range(pieces) for k in range(size)]
    backward = [(micro_batch, pieces - 1 - piece) for micro_batch, piece in forward]
    return _alternating(forward, backward, min((stages - stage - 1) * 2 + (pieces - 1) * first, len(forward)))


def _alternating(forward: list[tuple[int, int]], backward: list[tuple[int, int]], ahead: int) -> list[Action]:
    """`ahead` forward passes, then one of each in turn, then what is left of the backward passes."""
    actions = [Action(True, *which) for which in forward[:ahead]]
    for there, back in zip(forward[ahead:], backward, strict=False):
        actions += [Action(True, *there), Action(False, *back)]
    return [*actions, *(Action(False, *which) for which in backward[len(forward) - ahead :])]


@dataclass(frozen=True)
class Timeline:
    """When each stage does what: `spans[stage]` are (action, start, end); `held[stage]` the most passes begun at a
    time whose backward pass was still to come; times are in the unit of the durations."""

    spans: list[list[tuple[Action, float, float]]]
    held: list[int]

    @property
    def end(self) -> float:
        """When the last stage is done."""
        return max((end for spans in self.spans for _, _, end in spans), default=0.0)

    @property
    def idle(self) -> float:
        """The share of all stages' time in which they wait: the bubble."""
        busy = sum(end - start for spans in self.spans for _, start, end in spans)
        return 1 - busy / (self.end * len(self.spans)) if self.end else 0.0


class Deadlock(Exception):
    """The stages wait for each other; the message says which for what."""


def simulate(
    tables: Sequence[Sequence[Action]], forward: Sequence[float], backward: Sequence[float], travel: float = 0.0
) -> Timeline:
    """What comes of the stages' tables.

    `forward` and `backward` are the durations of each piece of the model in its order, S x P of them for S stages of P
    pieces: piece p of stage s is number p S + s.  `travel` is the time between two stages.  Raises Deadlock when an
    action can never begin.
    """
    stages, total = len(tables), len(forward)
    done: dict[tuple[bool, int, int], float] = {}
    waiting = [deque(table) for table in tables]
    spans: list[list[tuple[Action, float, float]]] = [[] for _ in tables]
    moved = True
    while moved and any(waiting):
        moved = False
        for stage, queue in enumerate(waiting):
            while queue:
                action = queue[0]
                number = action.piece * stages + stage
                ready = _ready(done, action, number, total, travel)
                if ready is None:
                    break
                start = max(ready, spans[stage][-1][2] if spans[stage] else 0.0)
                end = start + (forward if action.forward else backward)[number]
                done[action.forward, action.micro_batch, number] = end
                spans[stage].append((queue.popleft(), start, end))
                moved = True
    if any(waiting):
        stuck = "; ".join(f"stage {stage} at {queue[0]}" for stage, queue in enumerate(waiting) if queue)
        raise Deadlock(f"the stages of the pipeline wait for each other: {stuck}")
    return Timeline(spans, [_most_held(table) for table in tables])


def _ready(
    done: dict[tuple[bool, int, int], float], action: Action, number: int, total: int, travel: float
) -> float | None:
    """When what an action needs is there, None when it is not known yet."""
    if action.forward:
        needs = (True, action.micro_batch, number - 1) if number else None
    elif number == total - 1:
        needs = (True, action.micro_batch, number)
    else:
        needs = (False, action.micro_batch, number + 1)
    if needs is None:
        return 0.0
    if needs not in done:
        return None
    return done[needs] + (travel if needs[2] != number else 0.0)


def _most_held(table: Sequence[Action]) -> int:
    held = most = 0
    for action in table:
        held += 1 if action.forward else -1
        most = max(most, held)
    return most

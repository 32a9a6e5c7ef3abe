"""Pipeline schedules and their simulation, for checks before a run and for planning.

The schedule is one forward, one backward (1F1B), or interleaved with several pieces per process (Narayanan et al.,
2021, arXiv 2104.04473, sections 2.2.1 and 2.2.2).  The order is that of Paddle's fleet, with which a test compares it.
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


def pipeline_schedule(stage: int, stages: int, micro_batches: int, pieces: int = 1) -> list[Action]:
    """Return a stage's actions in order.  Several `pieces` require at least two micro-batches per stage."""
    if pieces == 1:
        ahead = min(stages - stage - 1, micro_batches)
        passes = [(k, 0) for k in range(micro_batches)]
        return _alternating(passes, passes, ahead)
    first = micro_batches % stages + stages  # micro-batches of a piece's first turn
    turns = [(start, first if start == 0 else stages) for start in (0, *range(first, micro_batches, stages))]
    forward = [(start + k, piece) for start, size in turns for piece in range(pieces) for k in range(size)]
    backward = [(micro_batch, pieces - 1 - piece) for micro_batch, piece in forward]
    return _alternating(forward, backward, min((stages - stage - 1) * 2 + (pieces - 1) * first, len(forward)))


def _alternating(forward: list[tuple[int, int]], backward: list[tuple[int, int]], ahead: int) -> list[Action]:
    """Return `ahead` warm-up forward passes, alternating forward and backward passes, then the other backward ones."""
    actions = [Action(True, *which) for which in forward[:ahead]]
    for ahead_pass, back_pass in zip(forward[ahead:], backward, strict=False):
        actions += [Action(True, *ahead_pass), Action(False, *back_pass)]
    return [*actions, *(Action(False, *which) for which in backward[len(forward) - ahead :])]


@dataclass(frozen=True)
class Timeline:
    """A simulated schedule: `spans[stage]` are (action, start, end), and `held[stage]` is the peak number of passes
    whose backward pass is still pending; times are in the unit of the durations."""

    spans: list[list[tuple[Action, float, float]]]
    held: list[int]

    @property
    def end(self) -> float:
        """The time at which the last stage is done."""
        return max((end for spans in self.spans for _, _, end in spans), default=0.0)


class Deadlock(Exception):
    """Raised when the stages wait for each other; the message names the action that each is blocked on."""


def simulate(
    tables: Sequence[Sequence[Action]], forward: Sequence[float], backward: Sequence[float], travel: float = 0.0
) -> Timeline:
    """Simulate the schedules (`tables`) of all stages.

    `forward` and `backward` are the durations of the model's S x P pieces in order, for S stages of P pieces.  Piece p
    of stage s has the index p S + s.  `travel` is the communication time between two stages.  Raises Deadlock if an
    action can never start.
    """
    stages, total = len(tables), len(forward)
    done: dict[tuple[bool, int, int], float] = {}
    waiting = [deque(table) for table in tables]
    spans: list[list[tuple[Action, float, float]]] = [[] for _ in tables]
    progress = True
    while progress and any(waiting):
        progress = False
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
                progress = True
    if any(waiting):
        stuck = "; ".join(f"stage {stage} at {queue[0]}" for stage, queue in enumerate(waiting) if queue)
        raise Deadlock(f"the stages of the pipeline wait for each other: {stuck}")
    return Timeline(spans, [_most_held(table) for table in tables])


def _ready(
    done: dict[tuple[bool, int, int], float], action: Action, number: int, total: int, travel: float
) -> float | None:
    """Return when the input of an action is available, None if that is not known yet."""
    if action.forward:
        needed = (True, action.micro_batch, number - 1) if number else None
    elif number == total - 1:
        needed = (True, action.micro_batch, number)
    else:
        needed = (False, action.micro_batch, number + 1)
    if needed is None:
        return 0.0
    if needed not in done:
        return None
    return done[needed] + (travel if needed[2] != number else 0.0)


def _most_held(table: Sequence[Action]) -> int:
    held = most = 0
    for action in table:
        held += 1 if action.forward else -1
        most = max(most, held)
    return most

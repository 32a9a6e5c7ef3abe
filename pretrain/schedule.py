"""Which tasks feed which step: the stages of continual multi-task learning as a pure function of the step.

ERNIE 2.0 (Sun et al., 2019), section 3.1 and table 6: a new task is trained together with all the old ones, and each
task's iterations are spread over the stages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from ernie.errors import UserError

Method = Literal["continual", "sequential", "joint"]


@dataclass(frozen=True)
class ScheduleConfig:
    """The stages, written out or by rule.

    Either `stages`: one mapping a stage from task to its number of steps.  Or `steps_per_task` with `tasks` in the
    order they arrive, and `method`: `continual` gives a task of S stages that arrives at stage s all but (S - s) of
    its S + 1 shares at once and one share in each later stage (the rule behind the paper's table), `sequential`
    trains one task after the other, `joint` all at once.  `draw` says what one step is made of: micro-batches of
    `one` task, or a `mix` in proportion to the stage's steps.
    """

    stages: list[dict[str, int]] | None = None
    steps_per_task: int | None = None
    tasks: list[str] | None = None
    method: Method = "continual"
    draw: Literal["one", "mix"] = "one"

    def __post_init__(self) -> None:
        if (self.stages is None) == (self.steps_per_task is None):
            raise UserError(
                "give either stages, such as [{knowledge_masking: 1000}], or steps_per_task and tasks"
                + ("" if self.stages is None else "; both are there")
            )
        if self.stages == []:
            raise UserError("stages: name at least one stage")
        if self.steps_per_task is not None and not self.tasks:
            raise UserError("steps_per_task: also list the tasks, in the order they arrive (tasks: [...])")
        if self.stages is not None and self.tasks is not None:
            raise UserError("tasks: belongs to steps_per_task; with stages the tasks are the stages' keys")
        if self.stages is not None and self.method != ScheduleConfig.method:
            raise UserError(f"method: {self.method} is a rule for steps_per_task; the stages are written out here")
        if self.tasks and len(set(self.tasks)) < len(self.tasks):
            raise UserError("tasks: a task stands in the list twice")
        if self.steps_per_task is not None and self.steps_per_task < 1:
            raise UserError(f"steps_per_task: expected at least 1, found {self.steps_per_task}")
        for number, stage in enumerate(self.stages or [], 1):
            for task, steps in stage.items():
                if steps < 0:
                    raise UserError(f"stages: stage {number} gives {task} {steps} steps")
            if not sum(stage.values()):
                raise UserError(f"stages: stage {number} has no steps")

    @cached_property
    def table(self) -> list[dict[str, int]]:
        """The stages, tasks without steps left out."""
        if self.stages is not None:
            return [{task: steps for task, steps in stage.items() if steps} for stage in self.stages]
        assert self.tasks is not None and self.steps_per_task is not None
        return split_evenly(self.tasks, self.steps_per_task, self.method)

    @property
    def task_names(self) -> list[str]:
        """All tasks, in the order they arrive."""
        return list(dict.fromkeys(task for stage in self.table for task in stage))


def split_evenly(tasks: Sequence[str], steps: int, method: Method) -> list[dict[str, int]]:
    """The table that gives every task `steps` steps in all."""
    if method == "joint":
        return [dict.fromkeys(tasks, steps)]
    if method == "sequential":
        return [{task: steps} for task in tasks]
    share = steps // (len(tasks) + 1)
    stages = []
    for s in range(len(tasks)):
        own = steps - (len(tasks) - 1 - s) * share
        stage = {task: share for task in tasks[:s] if share}
        stages.append(stage | {tasks[s]: own})
    return stages


class Slot(NamedTuple):
    """What one step draws: its stage (from 0) and, in order, a task for each micro-batch."""

    stage: int
    draws: tuple[str, ...]


class Schedule(Sequence[Slot]):
    """`schedule[step]` is the Slot of a step.  Pure: every process and every resumed run sees the same.

    Within a stage the tasks alternate as evenly as their numbers allow, and get exactly their numbers.
    """

    def __init__(self, config: ScheduleConfig, micro_batches: int = 1):
        self.table = config.table
        self.tasks = config.task_names
        self._micro_batches = micro_batches
        self._mix = config.draw == "mix"
        self.stage_ends = np.cumsum([sum(stage.values()) for stage in self.table])
        self._orders: dict[int, np.ndarray] = {}

    def __len__(self) -> int:
        return int(self.stage_ends[-1])

    def __getitem__(self, step: int) -> Slot:  # type: ignore[override]
        if not 0 <= step < len(self):
            raise IndexError(step)
        stage = self.stage_of(step)
        names = list(self.table[stage])
        place = step - self.stage_start(stage)
        order = self._order(stage)
        if self._mix:
            drawn = order[place * self._micro_batches : (place + 1) * self._micro_batches]
        else:
            drawn = np.repeat(order[place], self._micro_batches)
        return Slot(stage, tuple(names[int(i)] for i in drawn))

    def digest(self) -> str:
        """A value that two schedules share only when every step of both draws the same."""
        found = hashlib.blake2b(repr([self.table, self._micro_batches, self._mix]).encode(), digest_size=16)
        for stage in range(len(self.table)):
            found.update(self._order(stage).tobytes())
        return found.hexdigest()

    def stage_of(self, step: int) -> int:
        """The stage (from 0) that a step belongs to."""
        return int(np.searchsorted(self.stage_ends, step, side="right"))

    def stage_start(self, stage: int) -> int:
        """The first step of a stage."""
        return int(self.stage_ends[stage - 1]) if stage else 0

    def stage_length(self, stage: int) -> int:
        """The number of steps of a stage."""
        return int(self.stage_ends[stage]) - self.stage_start(stage)

    def ends_stage(self, step: int) -> bool:
        """Whether a step is the last of its stage."""
        return step + 1 in self.stage_ends

    def _order(self, stage: int) -> np.ndarray:
        """The tasks of a stage's slots: the j-th slot of a task with n of them is due at (j + 1/2) / n."""
        if stage not in self._orders:
            counts = np.array(list(self.table[stage].values())) * (self._micro_batches if self._mix else 1)
            due = np.concatenate([(np.arange(n) + 0.5) / n for n in counts])
            task = np.repeat(np.arange(len(counts)), counts)
            self._orders[stage] = task[np.argsort(due, kind="stable")].astype(np.int16)
        return self._orders[stage]

"""The forgetting ledger: the score of every task learned so far after each stage.

A matrix with a row per finished stage and a column per task.  Continual learning is judged by its columns: the score of
a task that later stages do not rehearse falls below its own best.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ernie.metrics import Score
from pretrain.history import Measurement


@dataclass(frozen=True)
class Ledger:
    """`cells[row][column]` is the score of `tasks[column]` after stage `stages[row]` (from 0); None before the task
    arrived."""

    tasks: list[str]
    stages: list[int]
    cells: list[list[Score | None]]

    def column(self, task: str) -> list[Score | None]:
        """Return the scores of a task, stage by stage."""
        index = self.tasks.index(task)
        return [row[index] for row in self.cells]

    def shortfalls(self, task: str) -> list[float | None]:
        """Return how far the task is below its own best so far, after each stage, as a fraction of that best."""
        scores: list[Score] = []
        fractions: list[float | None] = []
        for score in self.column(task):
            if score is not None:
                scores.append(score)
            fractions.append(None if score is None else shortfall(score, best(scores)))
        return fractions

    def forgetting(self, task: str) -> float | None:
        """Return (best over the stages - last) / best, with the sign reversed where lower is better; None before the
        task's first measurement."""
        measured = [short for short in self.shortfalls(task) if short is not None]
        return measured[-1] if measured else None

    def has_forgotten(self, task: str) -> bool:
        """Whether something learned was lost: the best score beat the majority, and the last one is worse in all but
        2.5 % of the bootstrap draws of documents."""
        measured = [score for score in self.column(task) if score is not None]
        if not measured:
            return False
        top, last = best(measured), measured[-1]
        return beats_majority(top) and last.is_worse_than(top)

    def as_dict(self) -> dict[str, Any]:
        """Return the ledger as plain data; stages count from 1."""
        return {
            "tasks": self.tasks,
            "stages": [stage + 1 for stage in self.stages],
            "scores": [[score and score.as_dict() for score in row] for row in self.cells],
            "forgetting": {task: self.forgetting(task) for task in self.tasks},
            "beyond_chance": [task for task in self.tasks if self.has_forgotten(task)],
        }

    def rows(self) -> list[list[str]]:
        """Return the ledger as a text table: a header, the metrics, a row per stage, and what was forgotten."""
        columns = [[score for score in self.column(task) if score is not None] for task in self.tasks]
        return [
            ["after stage", *self.tasks],
            ["metric", *(scores[0].name if scores else "" for scores in columns)],
            *(
                [str(stage + 1), *(_cell(score) for score in row)]
                for stage, row in zip(self.stages, self.cells, strict=True)
            ),
            ["forgotten", *(self._forgotten(task) for task in self.tasks)],
        ]

    def _forgotten(self, task: str) -> str:
        forgotten = self.forgetting(task)
        return "" if forgotten is None else f"{forgotten:.1%}{' *' if self.has_forgotten(task) else ''}"


def make_ledger(measurements: Iterable[Measurement], tasks: Sequence[str]) -> Ledger:
    """Make the ledger of the measurements that end a stage; `tasks` are the columns, in order of arrival."""
    scores = {(m.stage, m.task): m.score for m in measurements if m.ends_stage}
    columns = list(dict.fromkeys([*tasks, *(task for _, task in scores)]))  # including those a changed schedule dropped
    stages = sorted({stage for stage, _ in scores})
    return Ledger(columns, stages, [[scores.get((stage, task)) for task in columns] for stage in stages])


def best(scores: Iterable[Score]) -> Score:
    """Return the best of a task's scores, the earliest of several equal ones."""
    return max(scores, key=lambda score: -score.value if score.lower_is_better else score.value)


def shortfall(score: Score, top: Score) -> float:
    """Return how far a score is from a better one, as a fraction of the better one; 0 if that is 0."""
    return abs(top.value - score.value) / abs(top.value) if top.value else 0.0


def beats_majority(score: Score) -> bool:
    """Whether the whole interval is better than the best constant answer."""
    return score.high < score.majority if score.lower_is_better else score.low > score.majority


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Format a table in Markdown, its columns padded so that it also reads well as plain text."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + " |" for row in rows
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def _cell(score: Score | None) -> str:
    return "" if score is None else f"{score.value:.3f} [{score.low:.3f}, {score.high:.3f}]"

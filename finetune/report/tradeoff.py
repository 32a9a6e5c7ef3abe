"""What models of one kind cost and what they give: score, size, and time on this machine, in each precision."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ernie.atomic import put_text
from ernie.data.labeled.row import Row
from ernie.errors import UserError
from ernie.formatting import plural
from ernie.kernels.precision import InferencePrecisionChoice, precision
from ernie.metrics import LOWER_IS_BETTER
from finetune.train.teacher import fitting
from inference.face import weight_count
from inference.precision import check_precision
from inference.task_model import TaskModel
from tasks.downstream.base import Answer, LogitsTask
from tasks.downstream.scoring import score_answers

TRADEOFF_FILE = "tradeoff.json"
PRECISIONS: tuple[InferencePrecisionChoice, ...] = ("fp32", "bf16", "int8")
MOST_ROWS = 1000  # that are scored, in each precision of each model
_TIMED = 48  # rows, each alone
_WARM_UP = 4


@dataclass(frozen=True)
class OperatingPoint:
    """A model in one precision: its `score`, its size, and its time on this machine.

    `milliseconds` is the median time of a row alone, from the row to its answer.  `rows_per_second` is the pace of many
    rows together.  `megabytes` is the size of its `weights` in float32, as they are saved.
    """

    model: str
    precision: str
    weights: int
    megabytes: float
    score: float = 0.0
    milliseconds: float = 0.0
    rows_per_second: float = 0.0

    @property
    def name(self) -> str:
        """The model and the precision as text."""
        return f"{self.model} {self.precision}"


@dataclass(frozen=True)
class Tradeoff:
    """The operating points of some models, and the `metric` by which they were scored on so many `rows`.

    `lacking` says for each precision that this machine does not have what it has instead.
    """

    metric: str
    rows: int
    points: tuple[OperatingPoint, ...]
    lacking: Mapping[str, str]

    @property
    def best(self) -> list[OperatingPoint]:
        """The points than which no other is both at least as good and at least as fast, the fastest first (Pareto)."""
        sign = -1 if self.metric in LOWER_IS_BETTER else 1
        found: list[OperatingPoint] = []
        for point in sorted(self.points, key=lambda point: (point.milliseconds, -sign * point.score)):
            if not found or sign * point.score > sign * found[-1].score:
                found.append(point)
        return found

    @property
    def explained(self) -> str:
        """What the figures are, in a few sentences."""
        absent = (f" {name} is not measured: {reason}." for name, reason in self.lacking.items())
        return (
            f"On {plural(self.rows, 'row')}. ms a row: the median time of a row alone, from its text to its answer, on "
            "this machine; rows a second: of many rows together. MB: of the weights in float32, as they are saved. No "
            f"other line is both at least as good and at least as fast as one that is marked.{''.join(absent)}"
        )

    def table(self) -> list[list[str]]:
        """Return all points as rows of a table, its header first."""
        best = self.best
        rows = [["model", "precision", self.metric, "weights", "MB", "ms a row", "rows a second", ""]]
        for point in self.points:
            figures = [f"{point.score:.4f}", f"{point.weights:,}", f"{point.megabytes:,.1f}"]
            times = [f"{point.milliseconds:.2f}", f"{point.rows_per_second:,.0f}"]
            rows.append([point.model, point.precision, *figures, *times, "best" if point in best else ""])
        return rows

    def write(self, folder: Path) -> None:
        """Write it as JSON to a folder."""
        put_text(folder / TRADEOFF_FILE, json.dumps(asdict(self), indent=2) + "\n")


@dataclass(frozen=True)
class _Variant:
    """A model in a precision.  Each has a model of its own, as the kernels pack the weights for one precision."""

    point: OperatingPoint
    choice: InferencePrecisionChoice
    model: TaskModel

    def timed(self, rows: Sequence[Row]) -> tuple[list[Answer], float]:
        """Return the answers to rows and the seconds that they took."""
        began = time.perf_counter()
        with precision(self.choice):
            answers = [outcome.get() for outcome in self.model.outcomes(rows)]
        return answers, time.perf_counter() - began


def measure_tradeoff(
    models: Mapping[str, Path], task: LogitsTask, rows: Sequence[Row], trust_plugins: Sequence[str] = ()
) -> Tradeoff:
    """Measure the models in these folders, by name, on labeled rows of `task`: the first thousand.

    Rows alone are timed in turns of all models, so that a slower minute of the machine is one for all of them.  Raises
    UserError for a model of another kind or with other labels.
    """
    rows, metric, lacking = rows[:MOST_ROWS], task.scored_by[0], dict(_lacking())
    choices = [choice for choice in PRECISIONS if choice not in lacking]
    variants = []
    for name, folder in models.items():
        for choice in choices:
            model = fitting(TaskModel.load(folder, trust_plugins, choice), task, str(folder))
            weights = weight_count(model)
            variants.append(_Variant(OperatingPoint(name, choice, weights, 4 * weights / 1e6), choice, model))
    together = [_scored(variant, task, rows) for variant in variants]
    seconds = [
        [variant.timed([row])[1] for variant in variants] for row in rows[:: max(1, len(rows) // _TIMED)][:_TIMED]
    ]
    points = (
        replace(variant.point, score=scores[metric], rows_per_second=pace, milliseconds=1000 * statistics.median(alone))
        for variant, (scores, pace), alone in zip(variants, together, zip(*seconds, strict=True), strict=True)
    )
    return Tradeoff(metric, len(rows), tuple(points), lacking)


def _scored(variant: _Variant, task: LogitsTask, rows: Sequence[Row]) -> tuple[dict[str, float], float]:
    """Return the scores of a model and its rows a second, after it has been used a little."""
    variant.timed(rows[:_WARM_UP])
    answers, seconds = variant.timed(rows)
    return score_answers(task, rows, answers), len(rows) / seconds


def _lacking() -> Iterator[tuple[str, str]]:
    """Yield each precision that this machine lacks, and what it has instead."""
    for choice in PRECISIONS:
        try:
            check_precision(choice)
        except UserError as error:
            yield choice, str(error).partition(": ")[2].partition(";")[0]

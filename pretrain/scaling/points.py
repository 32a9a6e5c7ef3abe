"""Data points of a learning curve: the training text, weights and error of each run."""

from __future__ import annotations

import csv
import math
import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ernie.errors import UserError
from ernie.model.config import EncoderConfig
from ernie.train.log import METRICS_FILE
from ernie.train.run_folder import MODEL
from pretrain import folder
from pretrain.feeds import training_split
from pretrain.history import read_checked, reading_records
from pretrain.planner.cost import Work
from pretrain.schedule import Schedule

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?:\D|$))")
PERPLEXITY = "perplexity"
_COLUMNS = ("size", "error", "weights", "width")


@dataclass(frozen=True)
class Point:
    """A run: `size` tokens of text, `weights` and `width` of its encoder, and its least `error` (nats per token).

    `course` holds steps, seconds and error at each measurement.  `passes` is how often the task with this error has
    read the text, `tokenizer` the fingerprint of its vocabulary; both only where they are known.
    """

    size: float
    error: float
    weights: float = 0.0
    width: int = 0
    course: tuple[tuple[int, float, float], ...] = ()
    passes: float = math.inf
    tokenizer: str = ""

    def until(self, error: float) -> tuple[int, float] | None:
        """The steps and seconds that the run took to reach an error; None when it did not."""
        return next(((steps, seconds) for steps, seconds, found in self.course if found <= error), None)


def read_run(run: Path, corpus_folder: Path | None = None) -> Point:
    """Read the point of a pretraining run, from the first of its tasks that is measured by perplexity.

    `corpus_folder` is where the run's corpus lies now, if it was moved.  Raises UserError when the folder is not a run,
    or no task was measured by perplexity.
    """
    config, corpus = folder.read(run, corpus_folder)
    if not (run / MODEL).is_dir():
        raise UserError(
            f"{run}: is not finished, it holds no {MODEL}/; finish it with the command that started it, or leave it out"
        )
    seconds, read, course = 0.0, 0.0, []
    schedule = Schedule(config.schedule, config.train.micro_batches)
    with reading_records(run):
        task, measured = _measured(run)
        for step in read_checked(run, "step"):
            draws = schedule[step["step"]].draws
            seconds += step["seconds"]
            read += step["tokens"] * draws.count(task) / len(draws)
            if step["step"] in measured:
                course.append((step["step"] + 1, seconds, measured[step["step"]]))
    shape = EncoderConfig.read(run / MODEL / "config.json")
    weights = Work(shape, 1, 1, 1.0).weights
    tokens = training_split(config, corpus).tokens
    least = min(measured.values())
    return Point(tokens, least, weights, shape.hidden_size, tuple(course), read / tokens, corpus.tokenizer.fingerprint)


def _measured(run: Path) -> tuple[str, dict[int, float]]:
    """Return the first task of a run that is measured by perplexity, and its error after each step with a finite
    one."""
    probes = [probe for probe in read_checked(run, "probe") if PERPLEXITY in probe["scores"]]
    if not probes:
        raise UserError(f"{run / METRICS_FILE}: no task was measured by {PERPLEXITY}; is knowledge_masking scheduled?")
    task = probes[0]["task"]
    values = {probe["step"]: probe["scores"][PERPLEXITY]["value"] for probe in probes if probe["task"] == task}
    measured = {step: math.log(value) for step, value in values.items() if value is not None}  # None: not finite
    if not measured:
        raise UserError(f"{run / METRICS_FILE}: {task} was never measured with a finite {PERPLEXITY}")
    return task, measured


def read_table(file: Path) -> list[Point]:
    """Read points from a TSV or CSV file with the columns `size` and `error`, and optionally `weights` and `width`.

    Case and spaces in the header do not matter; semicolons separate cells, too.  Sizes may have commas between
    thousands: where commas separate cells, such a number has to be quoted.  Raises UserError with the line of an
    invalid value.
    """
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    lines = text.splitlines()
    delimiter = next((mark for mark in "\t;" if mark in "".join(lines[:1])), ",")
    rows = csv.DictReader(lines, delimiter=delimiter, skipinitialspace=True)
    names = rows.fieldnames = [name.strip().lower() for name in rows.fieldnames or []]
    for name in _COLUMNS:
        if name in ("size", "error") and name not in names:
            raise UserError(f"{file}:1: the column '{name}' is missing; expected size, error and perhaps weights")
        if names.count(name) > 1:
            raise UserError(f"{file}:1: the column '{name}' is there twice")
    points = []
    for row in rows:
        place = f"{file}:{rows.line_num}"
        if any(map(str.strip, row.get(None, ()))):  # cells beyond the header's
            raise UserError(
                f"{place}: has {len(names) + len(row[None])} cells, expected {len(names)}: {', '.join(names)}; put a "
                "number with commas in quotes"
            )
        values = {name: _number(place, name, (row.get(name) or "").strip()) for name in _COLUMNS}
        points.append(Point(values["size"], values["error"], values["weights"], int(values["width"])))
    return points


def _number(place: str, name: str, cell: str) -> float:
    """Return the number in a cell of a table.  An error has no thousands: its comma would be that of its decimals."""
    try:
        value = float((cell if name == "error" else _THOUSANDS.sub("", cell)) or 0)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0 or (value == 0 and name in ("size", "error")):
        how = ", with a full stop before its decimals" if "," in cell else ""
        raise UserError(f"{place}: {name}: expected a number above 0{how}, found '{cell:.60}'")
    return value


def alike(points: Sequence[Point]) -> list[list[Point]]:
    """Group the runs by size and encoder: those of one group repeat each other, as with several seeds."""
    groups: dict[tuple[float, int, float], list[Point]] = {}
    for point in points:
        groups.setdefault((point.size, point.width, point.weights), []).append(point)
    return list(groups.values())


def best(points: Sequence[Point]) -> list[Point]:
    """The point with the least error for each size, smallest size first.

    Runs that are alike count as one with their mean error: the least of them would be the luckiest, and hide how much
    errors vary.
    """
    means = [
        replace(runs[0], error=statistics.mean(run.error for run in runs), passes=min(run.passes for run in runs))
        for runs in alike(points)
    ]
    sizes = sorted({point.size for point in means})
    return [min((point for point in means if point.size == size), key=lambda point: point.error) for size in sizes]

"""The comparison of two runs on the same rows: how sure a difference of their scores is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ernie.data.labeled.read import read_split
from ernie.data.labeled.row import Row
from ernie.errors import UserError, about, nearest
from ernie.formatting import plural
from ernie.kernels.precision import InferencePrecisionChoice
from ernie.train.run_folder import MODEL
from finetune.prepare import prepare
from finetune.report.split_answers import answers_file, read_split_answers, using_answers
from finetune.train.run_contents import load_model, read_inputs, read_run, split_rows
from finetune.train.trial import SCORES_FILE, Trial, best_point
from tasks.downstream.base import Answer, FinetuneTask, answer_columns
from tasks.downstream.resampling import Judged, interval, mcnemar
from tasks.downstream.saved import TRIALS_FOLDER, read_task

_BY_ROW = ("accuracy", "exact")  # metrics that say of each row whether it is right
_LEVEL = 0.05


@dataclass(frozen=True)
class Answers:
    """The answers of a run to the rows of a split, by one model or by those of several seeds."""

    folder: Path
    seeds: tuple[str, ...]
    each: tuple[Sequence[Answer], ...]


@dataclass(frozen=True)
class Difference:
    """How much higher a metric of the second run is, with its 95 % interval and p; `scores` are those of both.

    Each score has its own interval.  Scores of several seeds are means.
    """

    metric: str
    scores: tuple[float, float]
    intervals: tuple[tuple[float, float], tuple[float, float]]
    value: float
    low: float
    high: float
    p: float

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "scores": list(self.scores),
            "intervals": [list(each) for each in self.intervals],
            "difference": self.value,
            "low": self.low,
            "high": self.high,
            "p": self.p,
        }


@dataclass(frozen=True)
class Comparison:
    """Two runs, compared by the metrics of the first on the same rows.

    Of as many seeds each; `left_out` counts those of the run that has more.
    """

    split: str
    rows: Sequence[Row]
    task: FinetuneTask
    runs: tuple[Answers, Answers]
    names: tuple[str, ...]
    left_out: int = 0

    @cached_property
    def _targets(self) -> list[Any]:
        return [self.task.target(row) for row in self.rows]

    @cached_property
    def _predictions(self) -> tuple[list[list[Any]], list[list[Any]]]:
        """The predictions of both runs, of each seed."""
        found = []
        for run in self.runs:
            with using_answers(run.folder):
                found.append([[self.task.prediction(dict(answer)) for answer in answers] for answers in run.each])
        return found[0], found[1]

    @cached_property
    def differences(self) -> list[Difference]:
        """The difference by each metric."""
        return [self._difference(Judged.of(self.task, name, self._targets)) for name in self.names]

    def _difference(self, judged: Judged) -> Difference:
        one, other = self._predictions
        drawn_SR = judged.drawn([*one, *other])
        first_R, second_R = drawn_SR[: len(one)].mean(0), drawn_SR[len(one) :].mean(0)
        scores = [float(np.mean([judged.score(each) for each in predictions])) for predictions in (one, other)]
        low, high = interval(second_R - first_R)
        return Difference(
            judged.name,
            (scores[0], scores[1]),
            (interval(first_R), interval(second_R)),
            scores[1] - scores[0],
            low,
            high,
            judged.swapped(one, other),
        )

    @cached_property
    def by_row(self) -> tuple[int, int, float] | None:
        """How many rows only the first run has right, and only the second, of the first seeds, and p by McNemar.

        None for a task without a metric that says of each row whether it is right.
        """
        name = next((name for name in _BY_ROW if name in self.task.known_metrics), None)
        if name is None:
            return None
        one, other = (self._right(name, predictions[0]) for predictions in self._predictions)
        return mcnemar(one, other)

    def _right(self, name: str, predictions: Sequence[Any]) -> np.ndarray:
        judged = Judged.of(self.task, name, self._targets)
        return np.array([judged.metric([t], [p]) == 1 for t, p in zip(self._targets, predictions, strict=True)])

    @cached_property
    def differing(self) -> list[int]:
        """The numbers of the rows with different predictions of the first seeds."""
        one, other = (predictions[0] for predictions in self._predictions)
        pairs = enumerate(zip(one, other, strict=True))
        return [number for number, (a, b) in pairs if not np.array_equal(np.asarray(a, object), np.asarray(b, object))]

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield for each row on which the runs differ its place, its label and both answers."""
        columns = answer_columns(self.task)
        for number in self.differing:
            row = self.rows[number]
            answers = [
                {key: value for key, value in run.each[0][number].items() if key not in ("row", "right")}
                for run in self.runs
            ]
            right = {column: row.get(column) for column in columns}
            yield {
                "row": str(row.place),
                "right": right if len(columns) > 1 else right[columns[0]],
                "first": answers[0],
                "second": answers[1],
            }

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        found: dict[str, Any] = {
            "split": self.split,
            "rows": len(self.rows),
            "runs": [str(run.folder) for run in self.runs],
            "seeds": len(self.runs[0].each),
            "metrics": {each.metric: each.as_dict() for each in self.differences},
            "differing": len(self.differing),
        }
        if self.by_row is not None:
            only_first, only_second, p = self.by_row
            found["mcnemar"] = {"only_first": only_first, "only_second": only_second, "p": p}
        return found

    def lines(self) -> Iterator[str]:
        """Yield it as lines of text."""
        first, second = self.runs
        count = len(first.each)
        over = f", {count} seeds each" if count > 1 else ""
        yield f"{self.split}: {plural(len(self.rows), 'row')}{over}"
        if self.left_out:
            yield f"note: the runs have different numbers of seeds; {plural(self.left_out, 'seed')} of one left out"
        width = max(len(str(first.folder)), len(str(second.folder)), len("difference"))
        for each in self.differences:
            yield ""
            yield each.metric
            for run, score, (low, high) in zip(self.runs, each.scores, each.intervals, strict=True):
                yield f"  {run.folder!s:<{width}}  {score:.4f}  [{low:.4f}, {high:.4f}]"
            said = "shown" if each.p < _LEVEL else "not shown"
            yield (
                f"  {'difference':<{width}} {each.value:+.4f}  [{each.low:+.4f}, {each.high:+.4f}]  {_shown(each.p)}: "
                f"{said} by these rows"
            )
        yield ""
        which = "" if count == 1 else f" of {first.seeds[0]} and {second.seeds[0]}"
        yield f"The answers{which} differ in {plural(len(self.differing), 'row')}."
        if self.by_row is not None:
            only_first, only_second, p = self.by_row
            yield (
                f"Only {first.folder} is right in {plural(only_first, 'row')}, only {second.folder} in "
                f"{only_second:,}; by McNemar's exact test {_shown(p)}."
            )
        yield (
            "In brackets are 95 % intervals by 1,000 draws of the rows (paired bootstrap); p is that of approximate "
            "randomization. They tell of the choice of rows"
            + (", and of these seeds alone." if count > 1 else ", not of the seed: several seeds tell of that.")
        )


def _shown(p: float) -> str:
    return "p < 0.0001" if p < 0.0001 else f"p = {p:.4f}"


def compare(
    runs: tuple[Path, Path], split: str, metrics: Sequence[str] = (), precision: InferencePrecisionChoice | None = None
) -> Comparison:
    """Compare two runs on a split of their data.  Raises UserError if its rows or their kinds differ."""
    configs = [read_run(folder) for folder in runs]
    for config, folder in zip(configs, runs, strict=True):
        if split not in config.data.splits():
            with about(f"--split: {folder}"):
                config.data.sources(split)
        if split == "train":
            raise UserError(f"--split: {folder} was trained on train; compare on dev or test")
    tasks = [read_task(folder / MODEL)[0] for folder in runs]
    if type(tasks[0]) is not type(tasks[1]):
        kinds = f"{runs[0]} is of the kind {tasks[0].variant_name}, {runs[1]} of the kind {tasks[1].variant_name}"
        raise UserError(f"{kinds}; only runs of the same kind can be compared")
    labels = [sorted(getattr(task, "labels", ())) for task in tasks]
    if labels[0] != labels[1]:
        raise UserError(f"{runs[1]}: has other labels than {runs[0]}; only runs with the same labels can be compared")
    if tasks[0].answer_fields == ("audio",):
        raise UserError(
            f"{runs[0]}: a model of the kind {tasks[0].variant_name} answers in sound; scores.json has scores"
        )
    digests = [read_inputs(folder).get(f"data.{split}") for folder in runs]
    if digests[0] != digests[1]:
        raise UserError(
            f"{split}: the rows of {runs[0]} and of {runs[1]} are not the same, as their origin.json says; `ernie "
            "finetune` again with the same files"
        )
    stored = [_stored(folder, split, task) for folder, task in zip(runs, tasks, strict=True)]
    if all(stored):
        found = [each for each in stored if each]
        by_place = {str(row.place): row for row in split_rows(configs[0], split)}
        places = [str(record["row"]) for record in found[0].each[0]]
        if any(place not in by_place for place in places):
            raise UserError(f"{split}: rows of {runs[0]} are not in its files any more; the data changed since")
        rows = [by_place[place] for place in places]
    else:
        rows, found = _answered(runs, split, precision)
    count = min(len(each.each) for each in found)
    one, other = (Answers(each.folder, each.seeds[:count], each.each[:count]) for each in found)
    if len({len(answers) for each in (one, other) for answers in each.each} | {len(rows)}) > 1:
        raise UserError(f"{split}: {runs[0]} and {runs[1]} have answered different numbers of rows")
    names = tuple(metrics) or tasks[0].scored_by
    unknown = [name for name in names if name not in tasks[0].known_metrics]
    if unknown:
        known = nearest(unknown[0], tasks[0].known_metrics)
        raise UserError(f"--metric: {tasks[0].variant_name} has no metric '{unknown[0]}'.{known}")
    left_out = max(len(each.each) for each in found) - count
    return Comparison(split, rows, tasks[0], (one, other), names, left_out)


def _stored(folder: Path, split: str, task: FinetuneTask) -> Answers | None:
    """Return the answers that a run has written, those of all seeds at its best point; None if it has none."""
    if answers_file(folder, split).is_file():  # of an ensemble or a calibrated model
        return Answers(folder, ("the model that is kept",), (read_split_answers(folder, split),))
    files = sorted((folder / TRIALS_FOLDER).glob(f"*/{SCORES_FILE}"))
    metric = task.scored_by[0]
    trials = [Trial.read(file, metric) for file in files]
    point = best_point(trials, metric)
    chosen = sorted((trial for trial in trials if trial.point == point), key=lambda each: (each.seed, each.fold or 0))
    folders = [folder / TRIALS_FOLDER / trial.name for trial in chosen]
    if not folders or not all(answers_file(place, split).is_file() for place in folders):
        return None
    names = tuple(trial.name for trial in chosen)
    return Answers(folder, names, tuple(read_split_answers(place, split) for place in folders))


def _answered(
    runs: tuple[Path, Path], split: str, precision: InferencePrecisionChoice | None
) -> tuple[list[Row], list[Answers]]:
    """Return the rows of a split, and the answers to them of the models that two runs keep."""
    found: list[Answers] = []
    rows: list[Row] = []
    for folder in runs:
        config, model = read_run(folder), load_model(folder, (), precision)
        options = config.data.options(split)
        read = read_split(f"split {split}", config.data.sources(split), options)
        prepared = prepare(model.task, read, model.tokenizer, skip=options.faulty == "skip")
        if not prepared.labeled:
            raise UserError(f"--split: {split} has no labels to score against")
        found.append(Answers(folder, ("the model that is kept",), (model.answers(prepared.examples),)))
        rows = rows or prepared.rows
    return rows, found

"""The comparison of runs, or of other models, on the same rows: how sure a difference of their scores is."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ernie.data.labeled.read import read_split
from ernie.data.labeled.row import Row, RowOptions
from ernie.errors import UserError, about, nearest
from ernie.formatting import plural
from ernie.kernels.precision import InferencePrecisionChoice
from ernie.report.markdown import cell
from ernie.train.run_folder import CONFIG, MODEL
from finetune.prepare import prepare
from finetune.report.split_answers import answers_file, read_split_answers, using_answers
from finetune.train.run_contents import load_model, read_inputs, read_run, rows_to_score, split_rows
from finetune.train.trial import SCORES_FILE, Trial, best_point
from tasks.downstream.base import Answer, FinetuneTask, answer_columns
from tasks.downstream.resampling import Judged, holm, interval, mcnemar
from tasks.downstream.saved import TRIALS_FOLDER, model_of, read_task

_BY_ROW = ("accuracy", "exact")  # metrics that say of each row whether it is right
_LEVEL = 0.05
_KEPT = "the model that is kept"


@dataclass(frozen=True)
class Answers:
    """The answers of a run to the rows of a split, by one model or by those of several seeds.

    Or those of a model without a run.
    """

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

    def labeled(self, number: int) -> dict[str, Any]:
        """Return the place and the label of a row."""
        row, columns = self.rows[number], answer_columns(self.task)
        right = {column: row.get(column) for column in columns}
        return {"row": str(row.place), "right": right if len(columns) > 1 else right[columns[0]]}

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield for each row on which the runs differ its place, its label and both answers."""
        for number in self.differing:
            one, other = (_given(run, number) for run in self.runs)
            yield {**self.labeled(number), "first": one, "second": other}

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

    @property
    def heading(self) -> str:
        """The rows and seeds, in a line."""
        count = len(self.runs[0].each)
        over = f", {count} seeds each" if count > 1 else ""
        return f"{self.split}: {plural(len(self.rows), 'row')}{over}"

    @property
    def seeds_note(self) -> list[str]:
        """A note if a run has more seeds than the others."""
        left_out = plural(self.left_out, "seed")
        return [f"note: the runs have different numbers of seeds; {left_out} of one left out"] * bool(self.left_out)

    def lines(self) -> Iterator[str]:
        """Yield it as lines of text."""
        first, second = self.runs
        count = len(first.each)
        yield self.heading
        yield from self.seeds_note
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


def _given(run: Answers, number: int) -> dict[str, Any]:
    """Return the answer to a row of a run's first seed."""
    return {key: value for key, value in run.each[0][number].items() if key not in ("row", "right")}


@dataclass(frozen=True)
class Table:
    """More than two runs, each compared with the first one on the same rows."""

    pairs: Sequence[Comparison]

    @property
    def _first(self) -> Comparison:
        return self.pairs[0]

    @cached_property
    def corrected(self) -> list[list[float]]:
        """For each metric the p of each comparison, corrected for their number (Holm)."""
        each = zip(*(pair.differences for pair in self.pairs), strict=True)
        return [holm([difference.p for difference in of_metric]) for of_metric in each]

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield for each row on which a run differs from the first its place, its label and the answers of all."""
        runs = [self._first.runs[0], *(pair.runs[1] for pair in self.pairs)]
        for number in sorted({number for pair in self.pairs for number in pair.differing}):
            given = {str(run.folder): _given(run, number) for run in runs}
            yield {**self._first.labeled(number), "answers": given}

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "split": self._first.split,
            "rows": len(self._first.rows),
            "seeds": len(self._first.runs[0].each),
            "first": str(self._first.runs[0].folder),
            "compared": {
                str(pair.runs[1].folder): {
                    each.metric: {**each.as_dict(), "p_holm": p[n]}
                    for each, p in zip(pair.differences, self.corrected, strict=True)
                }
                for n, pair in enumerate(self.pairs)
            },
        }

    def lines(self) -> Iterator[str]:
        """Yield it as lines of text, most of which are a table in Markdown."""
        pair = self._first
        yield pair.heading
        yield from pair.seeds_note
        yield ""
        head = ["metric", "run", "score", "95 %", "difference", "95 %", "p", "p (Holm)", ""]
        yield f"| {' | '.join(head)} |"
        yield f"|{'---|' * len(head)}"
        for number, (first, corrected) in enumerate(zip(pair.differences, self.corrected, strict=True)):
            score, own = f"{first.scores[0]:.4f}", _range(*first.intervals[0])
            yield f"| {first.metric} | {cell(str(pair.runs[0].folder))} | {score} | {own} | | | | | |"
            for other, p in zip(self.pairs, corrected, strict=True):
                each = other.differences[number]
                name, own = cell(str(other.runs[1].folder)), _range(*each.intervals[1])
                found = f"{each.value:+.4f} | {_range(each.low, each.high, '+')} | {each.p:.4f} | {p:.4f}"
                said = "shown" if p < _LEVEL else "not shown"
                yield f"| {each.metric} | {name} | {each.scores[1]:.4f} | {own} | {found} | {said} |"
        yield ""
        yield (
            f"Differences are from {pair.runs[0].folder}. Intervals are by 1,000 draws of the rows (paired bootstrap); "
            "p is that of approximate randomization. p (Holm) is corrected for the number of comparisons by a metric: "
            "with many of them, some p are small by chance (Holm, 1979)."
        )


def _range(low: float, high: float, sign: str = "") -> str:
    return f"{low:{sign}.4f} to {high:{sign}.4f}"


def compare(
    folders: Sequence[Path],
    split: str,
    metrics: Sequence[str] = (),
    precision: InferencePrecisionChoice | None = None,
    files: Sequence[str] = (),
    overrides: Sequence[str] = (),
) -> Comparison | Table:
    """Compare runs on a split of their data, or any models of a kind on rows of `files`, with the first of them.

    `overrides` change how the rows of files are read and answered.  Raises UserError for other rows, kinds or labels.
    """
    found, task, rows = (
        _answered(folders, *_sources(folders, split, files), precision, overrides)
        if files
        else _of_runs(folders, split, precision)
    )
    count = min(len(each.each) for each in found)
    alike = [Answers(each.folder, each.seeds[:count], each.each[:count]) for each in found]
    if len({len(answers) for each in alike for answers in each.each} | {len(rows)}) > 1:
        raise UserError(f"{split}: {_listed(folders)} have answered different numbers of rows")
    names = tuple(metrics) or task.scored_by
    unknown = [name for name in names if name not in task.known_metrics]
    if unknown:
        known = nearest(unknown[0], task.known_metrics)
        raise UserError(f"--metric: {task.variant_name} has no metric '{unknown[0]}'.{known}")
    left_out = max(len(each.each) for each in found) - count
    shown = ", ".join(files) or split
    pairs = [Comparison(shown, rows, task, (alike[0], other), names, left_out) for other in alike[1:]]
    return pairs[0] if len(pairs) == 1 else Table(pairs)


def _listed(folders: Sequence[Path]) -> str:
    *others, last = map(str, folders)
    return f"{', '.join(others)} and {last}"


def _of_runs(
    folders: Sequence[Path], split: str, precision: InferencePrecisionChoice | None
) -> tuple[list[Answers], FinetuneTask, list[Row]]:
    """Return the answers of runs to a split of their data, the task of the first, and the rows."""
    configs = [read_run(folder, takes_input=True) for folder in folders]
    for config, folder in zip(configs, folders, strict=True):
        if split not in config.data.splits():
            with about(f"--split: {folder}"):
                config.data.sources(split)
        if split == "train":
            raise UserError(f"--split: {folder} was trained on train; compare on dev or test")
    tasks = [read_task(folder / MODEL)[0] for folder in folders]
    for task, folder in zip(tasks, folders, strict=True):
        _check_alike(tasks[0], folders[0], task, folder)
    digests = [read_inputs(folder).get(f"data.{split}") for folder in folders]
    for digest, folder in zip(digests, folders, strict=True):
        if digest != digests[0]:
            raise UserError(
                f"{split}: the rows of {folders[0]} and of {folder} are not the same, as their origin.json says; "
                "`ernie finetune` again with the same files"
            )
    stored = [_stored(folder, split, task) for folder, task in zip(folders, tasks, strict=True)]
    if not all(stored):
        return _answered(folders, configs[0].data.sources(split), configs[0].data.options(split), precision)
    found = [each for each in stored if each]
    by_place = {str(row.place): row for row in split_rows(configs[0], split)}
    places = [str(record["row"]) for record in found[0].each[0]]
    if any(place not in by_place for place in places):
        raise UserError(f"{split}: rows of {folders[0]} are not in its files any more; the data changed since")
    return found, tasks[0], [by_place[place] for place in places]


def _check_alike(first: FinetuneTask, one: Path, task: FinetuneTask, other: Path) -> None:
    """Raise UserError unless the models in two folders, of these tasks, answer alike, and in text."""
    if type(first) is not type(task):
        kinds = f"{one} is of the kind {first.variant_name}, {other} of the kind {task.variant_name}"
        raise UserError(f"{kinds}; only runs of the same kind can be compared")
    if sorted(getattr(first, "labels", ())) != sorted(getattr(task, "labels", ())):
        raise UserError(f"{other}: has other labels than {one}; only runs with the same labels can be compared")
    if first.answer_fields == ("audio",):
        raise UserError(f"{one}: a model of the kind {first.variant_name} answers in sound; scores.json has scores")


def _stored(folder: Path, split: str, task: FinetuneTask) -> Answers | None:
    """Return the answers that a run has written, those of all seeds at its best point; None if it has none."""
    if answers_file(folder, split).is_file():  # of an ensemble or a calibrated model
        return Answers(folder, (_KEPT,), (read_split_answers(folder, split),))
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


def _sources(folders: Sequence[Path], split: str, files: Sequence[str]) -> tuple[tuple[str, ...], RowOptions]:
    """Return the files, and how they are read: as the split of the first folder that is a run, or as their names say.

    Raises UserError for a folder without a model.
    """
    for folder in folders:
        model_of(folder)
    run = next((folder for folder in folders if (folder / CONFIG).is_file()), folders[0])
    return rows_to_score(run, split, files)


def _answered(
    folders: Sequence[Path],
    sources: Sequence[str],
    options: RowOptions,
    precision: InferencePrecisionChoice | None,
    overrides: Sequence[str] = (),
) -> tuple[list[Answers], FinetuneTask, list[Row]]:
    """Return the answers of the models in folders to rows, the task of the first, and the rows."""
    read = read_split("rows", sources, options)
    found: list[Answers] = []
    for folder in folders:
        model = load_model(folder, overrides, precision)
        if not found:
            first, task, rows = folder, model.task, read.rows
        _check_alike(task, first, model.task, folder)
        model.task = _reading(model.task, task, {column for row in rows for column in row})
        prepared = prepare(model.task, replace(read, rows=rows), model.tokenizer, skip=options.faulty == "skip")
        if not prepared.labeled:
            raise UserError(f"{', '.join(sources)}: the rows have no labels to score against")
        rows = prepared.rows
        found.append(Answers(folder, (_KEPT,), (model.answers(prepared.examples),)))
    return found, task, rows


def _reading(task: FinetuneTask, first: FinetuneTask, columns: Container[str]) -> FinetuneTask:
    """Return a task that reads the columns of the first one where rows lack its own, as a published model's."""
    own = {name: getattr(task, name) for name in task.column_fields}
    lacking = [name for name, column in own.items() if isinstance(column, str) and column and column not in columns]
    changed: dict[str, Any] = {name: getattr(first, name) for name in lacking}
    return replace(task, **changed)

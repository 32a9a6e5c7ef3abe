"""The report of a fine-tuning run: scores, training curves and errors, as figures and one HTML page."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import shorten
from types import NoneType
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ernie.atomic import inner_folder, put_text
from ernie.config import dump
from ernie.data.labeled.row import spelled
from ernie.decode.latency import MEASURES
from ernie.formatting import duration, percent, plural
from ernie.json_file import check_kind
from ernie.metrics import LOWER_IS_BETTER
from ernie.report import page
from ernie.report.chapter import Chapter, write_chapters
from ernie.report.html_table import Cell, heat_table, table, text_table
from ernie.report.panels import (
    BLUE,
    MUTED,
    PAPER,
    SMALL,
    Label,
    above,
    apart,
    count_axis,
    margin_labels,
    panels,
    say,
    size,
    style,
    text_width,
)
from ernie.train.log import METRICS_FILE, read_records
from finetune.calibrate import Logits
from finetune.config import FinetuneConfig
from finetune.prepare import Prepared, describe
from finetune.report import judging, tradeoff_figure
from finetune.report.latency import Point
from finetune.report.split_answers import (
    OUT_OF_FOLD_FILE,
    answers_file,
    confusion,
    read_out_of_fold,
    read_split_answers,
    surest_mistakes,
    using_answers,
)
from finetune.report.tradeoff import Tradeoff
from finetune.search_space import SearchRecord, written
from finetune.train.trial import Result, Trial, best_point, spreads
from tasks.downstream.classify import Classify
from tasks.downstream.hooks import ScoresByLabel
from tasks.downstream.saved import TRIALS_FOLDER

PAGE, FOLDER = "report.html", "report"
_MOST_LABELS, _MOST_SCORED_LABELS = 20, 100  # larger tables are unreadable: of labels by labels, and of their scores
_MIN_DISTANCE = 0.15  # words: a distance whose lagging is this close to that of whole sentences is not drawn
_BETWEEN = 3.0  # points between the names of two distances
_STEP = {"loss": (float, NoneType), "skipped": (bool, int)}  # a record of a trial's metrics.jsonl
_LOSS_SPANS = 60  # of a trial's steps: the loss curve has one point, the mean loss, for each span
_TRIALS = 50  # of a search, that are listed
_MISTAKES, _TEXT = 10, 160  # how many are shown, and how many characters of each


def write_report(
    folder: Path,
    config: FinetuneConfig,
    result: Result,
    splits: list[Prepared],
    latency: Sequence[Point] = (),
    search: SearchRecord | None = None,
    tradeoff: Tradeoff | None = None,
    probabilities: Logits | None = None,
) -> Path:
    """Write figures and page to a run's folder; return the page's path.

    `latency` holds a translator's latency and quality at several distances from the source.  A `search` is what found
    the settings, a `tradeoff` what a student and its teacher cost and give.  `probabilities` are the logits of the rows
    that what is kept is judged by.
    """
    pictures = inner_folder(folder, FOLDER)
    if result.best.judged_on == "dev":
        kept = result.kept is not None and "dev" in result.kept.scores
        file = answers_file(folder if kept else folder / TRIALS_FOLDER / result.best.name, "dev")
        judged, records = _split(splits, "dev"), read_split_answers(file.parent, "dev")
    else:
        file = folder / OUT_OF_FOLD_FILE
        judged, records = _split(splits, "train"), read_out_of_fold(folder, result.best.seed)
    with using_answers(file):
        answered = [*_labels(records, result, judged), *_errors(records, result, judged)]
    with style():
        drawn = [*judging.reliability_chapters(result, probabilities)]
    with style():
        chapters = write_chapters([*_chapters(folder, result, latency, search, tradeoff), *drawn], pictures)
    parts = [
        page.paragraph(_sentence(config, result)),
        table("scores", result.score_rows()),
        page.paragraph(result.explained(), "note"),
        *_folds(result),
        *chapters,
        *_latency_table(result.metric, latency),
        *([] if tradeoff is None else tradeoff_figure.section(tradeoff)),
        *_grid(result),
        *_search_table(search),
        *judging.calibration_sections(result),
        *judging.interval_sections(result),
        *answered,
        *judging.loss_sections(config, result.task, splits[0]),
        page.section("Data", "What was read, and what is unusual about it.", *_data(splits)),
        page.folded("The configuration, with every default", dump(config)),
    ]
    spent = duration(sum(trial.seconds for trial in result.trials))
    state = f"{plural(len(result.trials), 'fine-tuning')}, {spent} of training"
    output = folder / PAGE
    put_text(output, page.page(folder.resolve().name, state, parts))
    return output


def _split(splits: list[Prepared], name: str) -> Prepared:
    return next(split for split in splits if split.name == name)


def _folds(result: Result) -> list[str]:
    """Return the table of the scores of each fold, for a cross-validation."""
    if result.folds == 1:
        return []
    note = "On the rows of train that the fold's model did not see; the deviation is that of a sample."
    return [page.section("Folds", note, table("folds", result.fold_rows()))]


def _sentence(config: FinetuneConfig, result: Result) -> str:
    seconds = [trial.seconds for trial in result.chosen]
    each = f"{duration(float(np.median(seconds)))} of training{' each (median)' if len(seconds) > 1 else ''}"
    return (
        f"{config.model} fine-tuned on the task {config.task.variant_name} under {plural(result.seeds, 'seed')}"
        f"{f' on {result.folds} folds' if result.folds > 1 else ''}, in {each}."
    )


def _chapters(
    folder: Path,
    result: Result,
    latency: Sequence[Point],
    search: SearchRecord | None,
    tradeoff: Tradeoff | None,
) -> Iterator[Chapter]:
    judged_on, line = result.best.judged_on, "seed" if result.folds == 1 else "fold of a seed"
    note = (
        f"Each thin line is a {line}, the thick one that of the model that was kept; the dot marks the checkpoint that "
        f"was chosen. The loss is averaged over spans of steps, at most {_LOSS_SPANS} of them."
    )
    yield Chapter("course", f"Scores on {judged_on} and loss in training", note, _draw_course(folder, result))
    if latency:
        note = (
            "How well the model translates when it stays a given number of tokens behind the source, over "
            f"{plural(latency[0].rows, 'row')} of dev{_too_long(latency[0])}. Filled dots are distances that it was "
            "trained for. Average lagging is the number of words (characters, in scripts without spaces) by which it "
            "lags behind a translation that keeps pace with the source (Ma et al., 2019), measured on input that "
            "arrives word by word; the table below has other measures and, separately, the computing time."
        )
        most = latency[0].max_wait_k
        if latency[0].confidence:
            note += f" Tokens less probable than {latency[0].confidence:g} wait longer, as was set"
            note += "." if most is None else f", and the longer the less, up to {plural(most, 'token')} behind."
        if latency[0].agreement:
            less = plural(latency[0].agreement, "source token")
            note += f" Tokens that would be others with {less} less wait longer, as was set"
            note += "." if most is None else f", up to {plural(most, 'token')} behind."
        yield Chapter("latency", "Latency and quality", note, _draw_latency(result.metric, latency))
    if tradeoff is not None:
        yield tradeoff_figure.chapter(tradeoff)

    if search is not None:
        note = "The score of each trial of the search, and the best so far as a line."
        if search.importances:
            note += (
                " Beside it, the share of the score's variance over all trials that each key explains (fANOVA: Hutter "
                "et al., 2014)."
            )
        yield Chapter("search", "The search for these settings", note, _draw_search(search))


def _draw_search(search: SearchRecord) -> Figure:
    titles = [f"{search.judged_on} · {search.metric}"] + ["share of variance"] * bool(search.importances)
    figure, (scores, *shares) = panels(titles, max(1.6, 0.25 * len(search.importances)))
    scored = [(trial.number, trial.score) for trial in search.trials if trial.score is not None]
    numbers, values = map(np.array, zip(*scored, strict=True))
    reached = np.minimum.accumulate(values) if search.metric in LOWER_IS_BETTER else np.maximum.accumulate(values)
    scores.plot(numbers, values, "o", color=MUTED, markersize=4)
    ends = [*numbers, len(search.trials)], [*reached, reached[-1]]
    scores.step(*ends, color=BLUE, linewidth=1.5, where="post")
    scores.plot(search.best.number, reached[-1], "o", color=BLUE, markersize=5, clip_on=False)
    count_axis(scores, 0, len(search.trials) + 1, "trials")
    margin_labels(scores, [Label(reached[-1], f"{reached[-1]:.3f}", BLUE, bold=True)])
    for axes in shares:
        names = [*search.importances][::-1]
        axes.barh(range(len(names)), [search.importances[name] for name in names], color=BLUE, height=0.3)
        axes.set_yticks([])
        axes.set_xlim(0, 1)
        axes.set_ylim(-0.3, len(names) - 0.3)
        for place, name in enumerate(names):
            shown = f"{name} {percent(search.importances[name])}"
            axes.text(0.01, place + 0.2, shown, ha="left", va="bottom", size=SMALL)
        say(axes, names)
    return figure


def _search_table(search: SearchRecord | None) -> list[str]:
    """Return the table of the trials of a search."""
    if search is None:
        return []
    keys = [*search.best.settings]
    rows = [["trial", *keys, f"{search.judged_on} {search.metric}", "computed in"]]
    for trial in [*search.ranked()][:_TRIALS]:
        score = f"{trial.score:.4f}" if trial.score is not None else trial.outcome
        values = (written(trial.settings[key]) for key in keys)
        rows.append([str(trial.number), *values, score, duration(trial.seconds)])
    more = f" The other {len(search.trials) - _TRIALS:,} are in search.jsonl." if len(search.trials) > _TRIALS else ""
    note = (
        f"The best first, each score the mean over seeds and folds.{more} The settings were chosen by these scores, so "
        f"that the best one is slightly too good: judge the model by rows that were not searched on."
    )
    return [page.section("Search", note, table("search", rows))]


def _too_long(point: Point) -> str:
    return f" ({plural(point.left_out, 'longer one')} cannot be read live)" if point.left_out else ""


def _latency_table(metric: str, latency: Sequence[Point]) -> Iterator[str]:
    """Yield a table of all latency measures at each distance."""
    if latency:
        rows = [["distance", metric, *(short for short, _ in MEASURES), "AL in tokens", "ms a token"]]
        for point in latency:
            measures = (f"{getattr(point.latency, name):.2f}" for _, name in MEASURES)
            lag = f"{point.token_latency.lagging:.2f}"
            rows.append([point.name, f"{point.score:.3f}", *measures, lag, f"{1000 * point.seconds:.1f}"])
        yield table("latencies", rows)


def _draw_latency(metric: str, latency: Sequence[Point]) -> Figure:
    figure, (axes,) = panels([f"dev · {metric}, against average lagging in words"], 2.6)
    whole = latency[-1]
    near = whole.latency.lagging - _MIN_DISTANCE
    points = [point for point in latency if point is whole or point.trained or point.latency.lagging < near]
    lags = np.array([point.latency.lagging for point in points])
    axes.plot(lags, [point.score for point in points], color=BLUE, linewidth=1.2)
    for point in points:
        place, face = (point.latency.lagging, point.score), BLUE if point.trained else PAPER
        axes.plot(*place, "o", color=BLUE, markerfacecolor=face, markersize=6, clip_on=False, zorder=3 + point.trained)
    axes.margins(0.06, 0.18)
    low, high = axes.get_xlim()
    names = [point.name if point in (points[0], whole) else str(point.wait_k) for point in points]
    gap = (_BETWEEN + max(text_width(name, SMALL) for name in names)) / size(axes)[0]
    gap = min(gap, 1 / max(1, len(points) - 1))  # many names overlap rather than leave the figure
    for point, name, place in zip(points, names, apart((lags - low) / (high - low), gap), strict=True):
        look: dict[str, Any] = {"ha": "center", "va": "bottom", "size": SMALL, "transform": axes.transAxes}
        axes.text(place, above(axes, 4), name, color=BLUE if point.trained else MUTED, **look)
    say(axes, names)
    return figure


def _draw_course(folder: Path, result: Result) -> Figure:
    trials = result.chosen
    figure, (scores, losses) = panels([f"{result.best.judged_on} · {result.metric}", "training loss"], 1.6)
    for trial in [*(t for t in trials if t is not result.best), result.best]:
        chosen = trial is result.best
        line_style: dict[str, Any] = (
            {"color": BLUE, "linewidth": 1.8} if chosen else {"color": MUTED, "linewidth": 0.8, "alpha": 0.7}
        )
        steps = [record["step"] for record in trial.curve]
        values = [record[result.metric] for record in trial.curve]
        scores.plot(steps, values, marker="o" if len(steps) == 1 else "", markersize=4, **line_style)
        place = steps.index(trial.best_step)
        scores.plot(steps[place], values[place], "o", color=line_style["color"], markersize=5, clip_on=False)
        means = _mean_losses(folder / TRIALS_FOLDER / trial.name, trial)
        losses.plot(*zip(*means, strict=True), marker="o" if len(means) == 1 else "", markersize=4, **line_style)
    for axes in (scores, losses):
        count_axis(axes, 0, max(trial.steps for trial in trials), "steps")
    best = result.best.headline(result.metric)
    margin_labels(scores, [Label(best, f"{best:.3f}", BLUE, bold=True)])
    margin_labels(losses, [Label(means[-1][1], f"{means[-1][1]:.3f}", BLUE, bold=True)])
    return figure


def _mean_losses(place: Path, trial: Trial) -> list[tuple[int, float]]:
    """Return the last step and the mean loss of each span of a trial's steps."""
    logged = read_records(place, "step") if (place / METRICS_FILE).is_file() else []
    for record in logged:
        check_kind(record, _STEP, f"{place / METRICS_FILE}: step {record['step']}", "The file is damaged; remove it.")
    records = [record for record in logged if not record["skipped"] and record["loss"] is not None]
    if not records:  # the log was removed, or comes from a version that logged evaluations only
        return [(record["step"], record["loss"]) for record in trial.curve]
    spans = np.array_split(np.arange(len(records)), min(len(records), _LOSS_SPANS))
    return [(records[span[-1]]["step"], float(np.mean([records[n]["loss"] for n in span]))) for span in spans]


def _grid(result: Result) -> list[str]:
    points = list(dict.fromkeys(trial.point for trial in result.trials))
    if len(points) < 2:
        return []
    best = best_point(result.trials, result.metric)
    rows = [["setting", f"{result.best.judged_on} {result.metric}", ""]]
    for point in points:
        shown = str(spreads(result.trials, point)[result.best.judged_on][result.metric])
        rows.append([point.replace(",", ", "), shown, "chosen" if point == best else ""])
    over, one = ("seeds and folds", "fold") if result.folds > 1 else ("seeds", "seed")
    note = f"The median over the {over} decides; the model that was kept is the best {one}'s of the chosen setting."
    return [page.section("Grid", note, table("grid", rows))]


def _labels(records: Sequence[dict[str, Any]], result: Result, judged: Prepared) -> list[str]:
    """Return the table of scores of each label, tag or type of entity, for tasks that have any."""
    task = result.task
    by_label = task.scores_by_label(judged.rows, records) if isinstance(task, ScoresByLabel) else {}
    if not 1 < len(by_label) <= _MOST_SCORED_LABELS:
        return []
    rows = [["", "precision", "recall", "F1", "targets"]]
    for label, scores in by_label.items():
        shares = (f"{scores[name]:.4f}" for name in ("precision", "recall", "f1"))
        rows.append([label, *shares, f"{scores['targets']:,}"])
    return [page.section("Each label", f"{_judged(judged)}.", table("labels", rows))]


def _judged(judged: Prepared) -> str:
    """Say which rows were answered, and by which model."""
    if judged.name == "dev":
        return "On dev, by the model that was kept"
    return "On train, each row by the best seed's model that did not see it"


def _errors(records: Sequence[dict[str, Any]], result: Result, judged: Prepared) -> list[str]:
    """Return the confusion table and the most confident mistakes, for tasks with one label per row."""
    if not isinstance(result.task, Classify) or len(result.task.labels) > _MOST_LABELS:
        return []
    labels = result.task.labels
    counts = confusion(records, labels)
    rows = [[Cell("right \\ answered"), *map(Cell, labels)]]
    for label, row in zip(labels, counts, strict=True):
        total = max(1, sum(row))
        rows.append([Cell(label), *(Cell(f"{n:,}", percent(n / total), n / total) for n in row)])
    note = (
        f"{_judged(judged)}. Rows by what is right, columns by what was answered; in small print the share of the row."
    )
    parts = [page.section("Which labels are taken for which", note, heat_table("confusion", rows))]
    mistakes = surest_mistakes(records, _MISTAKES)
    if mistakes:
        rows_of = {str(row.place): row for row in judged.rows}
        fields = [field for field in (result.task.text, result.task.text_pair) if field]
        lines = [["row", "right", "answered", "probability", *fields]]
        for mistake in mistakes:
            texts = [shorten(rows_of[mistake["row"]].text(field), _TEXT, placeholder=" …") for field in fields]
            place = Path(mistake["row"]).name
            lines.append([place, spelled(mistake["right"]), mistake["label"], f"{mistake['probability']:.3f}", *texts])
        kept = "dev.jsonl" if result.kept is not None else "the trials' dev.jsonl"
        file = kept if judged.name == "dev" else OUT_OF_FOLD_FILE
        note = f"Wrong labels, or hard rows: worth reading either way. All answers are in {file}."
        parts.append(page.section("The mistakes it was surest of", note, text_table("mistakes", lines, len(fields))))
    return parts


def _data(splits: list[Prepared]) -> Iterator[str]:
    for split in splits:
        yield page.paragraph(describe(split))
        for remark in split.remarks:
            yield page.paragraph(remark, "note")

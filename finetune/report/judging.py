"""How sure a run's scores and answers are: intervals of scores, and probabilities beside what came true."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ernie.formatting import plural
from ernie.report import page
from ernie.report.chapter import Chapter
from ernie.report.html_table import table
from ernie.report.panels import BLUE, MUTED, SMALL, panels, say
from finetune.config import FinetuneConfig
from finetune.prepare import Prepared, loss_notes
from finetune.train.trial import Result
from tasks.downstream.base import FinetuneTask
from tasks.downstream.calibration import BINS, calibration_error, reliability
from tasks.downstream.choose import Choose
from tasks.downstream.classify import Classify
from tasks.downstream.rank import Rank
from tasks.downstream.resampling import DRAWS, Judged, interval

_FEWEST = 100  # rows of a diagram: of fewer, each of its intervals has too few
_DOT = 130.0  # the area of the largest dot, in square points

Records = Sequence[Mapping[str, Any]]


def interval_sections(task: FinetuneTask, judged: Prepared, records: Records) -> Iterator[str]:
    """Yield the scores of the answers to a split with their 95 % intervals, of metrics that are quickly drawn anew."""
    targets = [task.target(row) for row in judged.rows]
    predictions = [task.prediction(dict(record)) for record in records]
    rows = [["", "score", "low", "high"]]
    for name in task.scored_by:
        measured = Judged.of(task, name, targets)
        if measured.sums(predictions) is None:
            continue
        low, high = interval(measured.drawn([predictions])[0])
        rows.append([name, *(f"{number:.4f}" for number in (measured.score(predictions), low, high))])
    if len(rows) > 1:
        note = (
            f"95 % intervals by {DRAWS:,} draws of the {plural(len(judged), 'row')} of {judged.name} with return "
            "(bootstrap), of the model whose answers are shown below. They tell of the choice of rows, not of the "
            "seed; ernie compare compares two runs row by row, which tells more than two intervals."
        )
        yield page.section("How sure the scores are", note, table("intervals", rows))


def loss_sections(config: FinetuneConfig, task: FinetuneTask, train: Prepared) -> Iterator[str]:
    """Yield what the settings of the loss make of the training rows, if some are in use."""
    lines = loss_notes(task, train)
    if config.teacher is not None:
        lines.append(f"teacher: {config.teacher.model}; {config.teacher.summary}")
    if lines:
        note = "What the settings of the loss make of the training rows."
        yield page.section("Loss", note, *map(page.paragraph, lines))


def calibration_sections(result: Result) -> Iterator[str]:
    """Yield the scores before and after a calibration, if there was one."""
    found = None if result.kept is None else result.kept.calibration
    if found is not None:
        yield page.section("Calibration", found.note, table("calibration", found.score_rows()))


def reliability_chapters(task: FinetuneTask, judged: Prepared, records: Records) -> Iterator[Chapter]:
    """Yield a diagram of the probabilities of answers beside the shares that came true, for kinds that give both."""
    found = _probabilities(task, judged, records)
    if found is None or len(judged) < _FEWEST:
        return
    error = calibration_error(*found)
    what = "that a text is relevant" if isinstance(task, Rank) else "of the most probable answer"
    note = (
        f"Left, for each of {BINS} intervals of the probability {what}: how often it came true on {judged.name}; a "
        "calibrated model is on the line, a dot below it is too sure. The area of a dot is the number of rows. Right, "
        f"how many rows have such a probability. The expected calibration error is {error:.4f}: the mean distance "
        "from the line (Guo et al., 2017). The key calibrate fits a temperature."
    )
    yield Chapter("reliability", "Probabilities and what came true", note, _draw(*found, error))


def _probabilities(task: FinetuneTask, judged: Prepared, records: Records) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the probabilities of answers (N,), and whether they came true (N,); None for other kinds.

    They are the most probable answers, as in Guo et al.: of two labels, a threshold may have given the other one.
    """
    targets = [task.target(row) for row in judged.rows]
    if isinstance(task, Rank):
        return np.array([record["score"] for record in records]), np.array([bool(target[1]) for target in targets])
    if not isinstance(task, Classify | Choose):
        return None
    hits = [task.prediction(dict(record)) == target for record, target in zip(records, targets, strict=True)]
    hits_N, probabilities_N = np.array(hits), np.array([record["probability"] for record in records])
    is_less_N = (probabilities_N < 0.5) & (isinstance(task, Classify) and len(task.labels) == 2)
    return np.where(is_less_N, 1 - probabilities_N, probabilities_N), hits_N ^ is_less_N


def _draw(probabilities_N: np.ndarray, hits_N: np.ndarray, error: float) -> Figure:
    figure, (shares, counts) = panels(["share that came true, by probability", "rows, by probability"], 2.2)
    bins = reliability(probabilities_N, hits_N)
    most = max(count for *_, count in bins)
    shares.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle="--")
    for mean, share, count in bins:
        shares.scatter([mean], [share], s=max(8.0, _DOT * count / most), color=BLUE, clip_on=False, zorder=3)
    shares.set_ylim(0, 1)
    look: dict[str, Any] = {"transform": shares.transAxes, "size": SMALL, "color": BLUE, "weight": "bold"}
    text = f"calibration error {error:.3f}"
    shares.text(0.03, 0.93, text, va="top", **look)
    say(shares, [text])
    counts.hist(probabilities_N, bins=BINS, range=(0, 1), color=BLUE, rwidth=0.9)
    for axes in (shares, counts):
        axes.set_xlim(0, 1)
    return figure

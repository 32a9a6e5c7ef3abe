"""How sure a run's scores and answers are: intervals of scores, and probabilities beside what came true."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ernie.report import page
from ernie.report.chapter import Chapter
from ernie.report.html_table import table
from ernie.report.panels import BLUE, MUTED, SMALL, panels, say
from finetune.calibrate import Logits, judged_decisions
from finetune.config import FinetuneConfig
from finetune.prepare import Prepared, loss_notes
from finetune.train.trial import Result
from tasks.downstream.base import FinetuneTask
from tasks.downstream.calibration import BINS, Calibrated, calibration_error, reliability

_FEWEST = 100  # probabilities of a diagram: of fewer, each of its intervals has too few
_DOT = 130.0  # the area of the largest dot, in square points


def interval_sections(result: Result) -> Iterator[str]:
    """Yield the scores with their 95 % intervals, if there are any."""
    if rows := result.interval_rows():
        yield page.section("How sure the scores are", result.intervals_explained, table("intervals", rows))


def loss_sections(config: FinetuneConfig, task: FinetuneTask, train: Prepared) -> Iterator[str]:
    """Yield what the settings of the loss make of the training rows, if some are in use."""
    if lines := loss_notes(task, train, config.teacher):
        note = "What the settings of the loss make of the training rows."
        yield page.section("Loss", note, *map(page.paragraph, lines))


def calibration_sections(result: Result) -> Iterator[str]:
    """Yield the scores before and after a calibration, if there was one."""
    found = None if result.kept is None else result.kept.calibration
    if found is not None:
        yield page.section("Calibration", found.note, table("calibration", found.score_rows()))


def reliability_chapters(result: Result, own: Logits | None) -> Iterator[Chapter]:
    """Yield a diagram of probabilities beside the shares that came true, given the logits of rows of a split."""
    task, calibration = result.task, result.kept.calibration if result.kept else None
    if own is None or not isinstance(task, Calibrated):
        return
    if calibration is not None and "temperature" in calibration.fitted:
        task = replace(task, temperature=calibration.fitted["temperature"])
    split = "dev" if result.best.judged_on == "dev" else "the rows that were held out"
    probabilities_P, hits_P = judged_decisions(task, own)
    if len(hits_P) < _FEWEST:
        return
    error = calibration_error(probabilities_P, hits_P)
    note = (
        f"Left, for each of {BINS} intervals of the probability {task.judged_in_words}: how often it came true on "
        f"{split}; a calibrated model is on the line, a dot below it is too sure. The area of a dot is the number of "
        f"such probabilities, which are shown on the right. The expected calibration error is {error:.4f}: the mean "
        "distance from the line (Guo et al., 2017). The key calibrate fits a temperature."
    )
    yield Chapter("reliability", "Probabilities and what came true", note, _draw(probabilities_P, hits_P, error))


def _draw(probabilities_P: np.ndarray, hits_P: np.ndarray, error: float) -> Figure:
    figure, (shares, counts) = panels(["share that came true, by probability", "count, by probability"], 2.2)
    bins = reliability(probabilities_P, hits_P)
    most = max(count for *_, count in bins)
    shares.plot([0, 1], [0, 1], color=MUTED, linewidth=0.8, linestyle="--")
    for mean, share, count in bins:
        shares.scatter([mean], [share], s=max(8.0, _DOT * count / most), color=BLUE, clip_on=False, zorder=3)
    shares.set_ylim(0, 1)
    look: dict[str, Any] = {"transform": shares.transAxes, "size": SMALL, "color": BLUE, "weight": "bold"}
    text = f"calibration error {error:.3f}"
    shares.text(0.03, 0.93, text, va="top", **look)
    say(shares, [text])
    counts.hist(probabilities_P, bins=BINS, range=(0, 1), color=BLUE, rwidth=0.9)
    for axes in (shares, counts):
        axes.set_xlim(0, 1)
    return figure

"""The figures of a run over its steps: schedule, losses, held-out metrics, optimization and speed."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter

from ernie.formatting import compact, percent, plural, power
from ernie.report.curve import curve, fit_y, line, name_end
from ernie.report.panels import (
    BLUE,
    DPI,
    FAINT,
    INK,
    MUTED,
    NORMAL,
    SMALL,
    TITLE_ABOVE,
    VERMILION,
    WIDTH,
    Label,
    above,
    count_axis,
    margin_labels,
    panels,
    shortened,
    size,
    text_width,
)
from pretrain.history import History, Measurement
from pretrain.report.summary import last_loss
from pretrain.schedule import Schedule

_HEIGHT = 1.25  # inches of a panel
_MOST_MARKERS = 40  # more would overlap
_FRACTIONS = LinearSegmentedColormap.from_list("fraction", ["#e3eef7", "#62a9d8"])  # light enough for dark text
_ROW, _BOTTOM, _RIGHT, _MOST_NAME = 0.36, 0.4, 0.75, 2.6  # inches, of the schedule
_TO_COME = 0.45  # opacity of future steps


def draw_schedule(schedule: Schedule, done: int) -> Figure:
    """Draw the table of stages and tasks, with stages along x by their steps.

    Each cell has the task's steps in the stage.  It is darker for a larger fraction of the stage, and pale where the
    steps are still to come.
    """
    tasks, total = schedule.tasks, len(schedule)
    left = min(_MOST_NAME, max(text_width(task, NORMAL) for task in tasks) / 72) + 0.25
    rows, width = len(tasks) * _ROW, WIDTH - left - _RIGHT
    height = rows + _BOTTOM + (0.35 if done >= total else 0.55)
    figure = Figure(figsize=(WIDTH, height), dpi=DPI)
    axes = figure.add_axes((left / WIDTH, _BOTTOM / height, width / WIDTH, rows / height))
    axes.set_ylim(len(tasks), 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    steps_axis(axes, schedule, total)
    for row, task in enumerate(tasks):
        counts = [stage.get(task, 0) for stage in schedule.table]
        _draw_names(axes, row, shortened(task, _MOST_NAME * 72, NORMAL), f"{compact(sum(counts))} in all")
        for stage, steps in enumerate(counts):
            if steps:
                _draw_cell(axes, schedule, (row, stage), steps, done, width * 72 / total)
    if done < total:
        now: dict[str, Any] = {
            "transform": axes.get_xaxis_transform(),
            "color": VERMILION,
            "size": SMALL,
            "weight": "bold",
        }
        axes.text(done, above(axes, 19), f"now at {compact(done)}", ha="center", **now)
    return figure


def _draw_names(axes: Axes, row: int, name: str, total: str) -> None:
    style: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center"}
    axes.text(-0.01, row + 0.5, name, ha="right", **style)
    axes.text(1.01, row + 0.5, total, color=MUTED, size=SMALL, **style)


def _draw_cell(
    axes: Axes, schedule: Schedule, cell: tuple[int, int], steps: int, done: int, points_a_step: float
) -> None:
    row, stage = cell
    start, length = schedule.stage_start(stage), schedule.stage_length(stage)
    gap = min(1.5 / points_a_step, length / 2)  # of the same width on paper for any length of the run
    passed = min(max(done - start, 0), length - gap)
    look: dict[str, Any] = {"facecolor": _FRACTIONS(steps / length), "linewidth": 0}
    axes.add_patch(Rectangle((start, row + 0.05), passed, 0.9, **look))
    axes.add_patch(Rectangle((start + passed, row + 0.05), length - gap - passed, 0.9, alpha=_TO_COME, **look))
    text = compact(steps)
    available, needed = length * points_a_step, text_width(text, SMALL) + 4
    horizontal = needed <= available
    if horizontal or (needed <= _ROW * 72 and SMALL <= available):
        middle: dict[str, Any] = {"ha": "center", "va": "center", "rotation": 0 if horizontal else 90}
        axes.text(
            start + (length - gap) / 2, row + 0.5, text, color=INK if done > start else MUTED, size=SMALL, **middle
        )


def draw_losses(history: History, schedule: Schedule) -> Figure:
    """Draw one panel per task: its training loss, smoothed over raw."""
    figure, panes = panels(list(history.losses), _HEIGHT)
    for axes, (task, losses) in zip(panes, history.losses.items(), strict=True):
        end = curve(axes, history.steps, losses, history.stages)
        fit_y(axes, losses)
        steps_axis(axes, schedule, history.done, arrival_stage(schedule, task))
        name_end(axes, end, f"{last_loss(losses):.3f}")
    return figure


def draw_metrics(history: History, schedule: Schedule) -> Figure:
    """Draw one panel per task: its headline metric on held-out documents with intervals, and the majority baseline."""
    measured = {task: measurements for task in schedule.tasks if (measurements := history.measured(task))}
    titles = [f"{task} · {measurements[0].score.name}" for task, measurements in measured.items()]
    figure, panes = panels(titles, _HEIGHT)
    for axes, (task, measurements) in zip(panes, measured.items(), strict=True):
        _draw_metric(axes, measurements)
        steps_axis(axes, schedule, history.done, arrival_stage(schedule, task))
    return figure


def _draw_metric(axes: Axes, measurements: list[Measurement]) -> None:
    steps = np.array([measurement.step + 1 for measurement in measurements])
    scores = [measurement.score for measurement in measurements]
    values, low, high = (np.array([getattr(score, name) for score in scores]) for name in ("value", "low", "high"))
    majority = scores[-1].majority
    if len(measurements) <= _MOST_MARKERS:
        bars = (values - low, high - values)
        axes.errorbar(steps, values, bars, fmt="o", color=BLUE, markersize=3.5, linewidth=1, clip_on=False)
    axes.fill_between(steps, low, high, color=BLUE, alpha=0.18, linewidth=0)
    line(axes, steps, values)
    axes.axhline(majority, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    axes.margins(y=0.06)
    last = scores[-1].value
    margin_labels(axes, [Label(last, f"{last:.3f}", BLUE, bold=True), Label(majority, f"majority {majority:.3f}", INK)])


def draw_optimization(history: History, schedule: Schedule, clip: float) -> Figure:
    """Draw the learning rate and the gradient norm over the steps."""
    figure, (rate, norm) = panels(["learning rate", "gradient norm"], _HEIGHT)
    line(rate, history.steps, history.rate)
    fit_y(rate, history.rate, from_zero=True)
    rate.yaxis.set_major_formatter(FuncFormatter(lambda value, _: power(value)))
    steps_axis(rate, schedule, history.done)
    highest = float(history.rate.max())
    margin_labels(rate, [Label(highest, f"peak {power(highest)}", BLUE, bold=True)])

    _, last = curve(norm, history.steps, history.gradient_norm, history.stages)
    fit_y(norm, history.gradient_norm, from_zero=True)
    steps_axis(norm, schedule, history.done)
    labels = [Label(last, f"{last:.2f}", BLUE, bold=True)] if np.isfinite(last) else []
    if clip and clip < norm.get_ylim()[1]:
        norm.axhline(clip, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        labels.append(Label(clip, f"clipped at {clip:g}", INK))
    _mark_skipped(norm, history)
    margin_labels(norm, labels)
    return figure


def _mark_skipped(axes: Axes, history: History) -> None:
    """Draw a tick on the axis for each skipped step."""
    steps = history.steps[history.skipped]
    if not len(steps):
        return
    axes.plot(steps, np.zeros(len(steps)), "|", color=VERMILION, transform=axes.get_xaxis_transform(), clip_on=False)
    note = f"{plural(len(steps), 'step')} skipped"
    position = (1, above(axes, TITLE_ABOVE))
    axes.text(*position, note, transform=axes.transAxes, ha="right", color=VERMILION, size=SMALL)


def draw_speed(history: History, schedule: Schedule) -> Figure:
    """Draw tokens per second, the fraction of time spent waiting for data, and the padding that packing saves."""
    speed = history.tokens / history.seconds
    waiting = history.waited / history.seconds
    figure, panes = panels(["tokens a second", "waiting for data", "padding spared by packing"], _HEIGHT)
    for axes, values in zip(panes, (speed, waiting, history.padding), strict=True):
        curve(axes, history.steps, values, history.stages)
        fit_y(axes, values, from_zero=True)
        steps_axis(axes, schedule, history.done)
    for axes in panes[1:]:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda fraction, _: f"{100 * fraction:g}%"))
    panes[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    median = float(np.median(speed))
    waited = history.waiting
    padding = float(history.padding.mean())
    for axes, value, text in zip(
        panes, (median, waited, padding), (compact(median), percent(waited), percent(padding)), strict=True
    ):
        margin_labels(axes, [Label(value, text, BLUE, bold=True)])
    return figure


def steps_axis(axes: Axes, schedule: Schedule, done: int, first_stage: int = 0) -> None:
    """Lay out steps along x from the start of `first_stage` to `done`, the stages separated by lines and numbered."""
    first = schedule.stage_start(first_stage)
    count_axis(axes, first, done, "step")
    high = above(axes, 5)  # clear of the tick label at the very top
    look: dict[str, Any] = {"color": MUTED, "size": SMALL}
    axes.text(-0.012, high, "stage", ha="right", transform=axes.transAxes, **look)
    points_a_step = size(axes)[0] / (done - first)
    for stage in range(first_stage, len(schedule.table)):
        start, end = schedule.stage_start(stage), min(done, int(schedule.stage_ends[stage]))
        number = str(stage + 1)
        if (end - start) * points_a_step > text_width(number, SMALL) + 2:
            axes.text((start + end) / 2, high, number, ha="center", transform=axes.get_xaxis_transform(), **look)
        if end < done:
            axes.axvline(end, color=FAINT, linewidth=0.8, zorder=1)


def arrival_stage(schedule: Schedule, task: str) -> int:
    """The stage in which a task has its first step; 0 for a task that a changed schedule dropped."""
    return next((stage for stage, steps in enumerate(schedule.table) if steps.get(task)), 0)

"""Figures of what was learned: the training loss of every task, and its metric on held-out documents."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ernie.report.curve import curve, fit_y, line, name_end
from ernie.report.panels import BLUE, INK, MUTED, Label, margin_labels, panels
from pretrain.history import History, Measurement
from pretrain.report.steps import arrival_stage, steps_axis
from pretrain.report.summary import last_loss
from pretrain.schedule import Schedule

_MOST_MARKERS = 40  # more would overlap


def draw_losses(history: History, schedule: Schedule) -> Figure:
    """Draw one panel per task: its training loss, smoothed over raw."""
    figure, panes = panels(list(history.losses), 1.25)
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
    figure, panes = panels(titles, 1.25)
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

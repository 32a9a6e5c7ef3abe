"""Figures of what was learnt: the loss of every task in training, and its metric on held-out documents."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ernie.report.curve import curve, fit_y, line, name_end
from ernie.report.panels import BLUE, INK, MUTED, Label, margin_labels, panels
from pretrain.history import History, Measurement
from pretrain.report.steps import arrival, steps_axis
from pretrain.report.summary import last_loss
from pretrain.schedule import Schedule

_MOST_MARKERS = 40  # more would run into each other


def draw_losses(history: History, schedule: Schedule) -> Figure:
    """A panel a task: its loss in training, smooth over raw."""
    figure, made = panels(list(history.losses), 1.25)
    for axes, (task, losses) in zip(made, history.losses.items(), strict=True):
        end = curve(axes, history.steps, losses, history.stages)
        fit_y(axes, losses)
        steps_axis(axes, schedule, history.done, arrival(schedule, task))
        name_end(axes, end, f"{last_loss(losses):.3f}")
    return figure


def draw_metrics(history: History, schedule: Schedule) -> Figure:
    """A panel a task: its headline metric on held-out documents with the interval, and the majority baseline."""
    measured = {task: found for task in schedule.tasks if (found := history.measured(task))}
    titles = [f"{task} · {found[0].score.name}" for task, found in measured.items()]
    figure, made = panels(titles, 1.25)
    for axes, (task, found) in zip(made, measured.items(), strict=True):
        _draw_metric(axes, found)
        steps_axis(axes, schedule, history.done, arrival(schedule, task))
    return figure


def _draw_metric(axes: Axes, found: list[Measurement]) -> None:
    steps = np.array([measurement.step + 1 for measurement in found])
    scores = [measurement.score for measurement in found]
    values, low, high = (np.array([getattr(score, name) for score in scores]) for name in ("value", "low", "high"))
    majority = scores[-1].majority
    if len(found) <= _MOST_MARKERS:
        bars = (values - low, high - values)
        axes.errorbar(steps, values, bars, fmt="o", color=BLUE, markersize=3.5, linewidth=1, clip_on=False)
    axes.fill_between(steps, low, high, color=BLUE, alpha=0.18, linewidth=0)
    line(axes, steps, values)
    axes.axhline(majority, color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
    axes.margins(y=0.06)
    last = scores[-1].value
    margin_labels(axes, [Label(last, f"{last:.3f}", BLUE, bold=True), Label(majority, f"majority {majority:.3f}", INK)])

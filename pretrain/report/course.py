"""Figures of the run's progress: learning rate and gradient norm, speed and waiting for data."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ernie.formatting import compact, percent, plural, power
from ernie.report.curve import curve, fit_y, line
from ernie.report.panels import (
    BLUE,
    INK,
    MUTED,
    SMALL,
    TITLE_ABOVE,
    VERMILION,
    Label,
    above,
    margin_labels,
    panels,
)
from pretrain.history import History
from pretrain.report.steps import steps_axis
from pretrain.schedule import Schedule

_HEIGHT = 1.25  # inches


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
    """Draw tokens per second, the share of time spent waiting for data, and the padding that packing saves."""
    speed = history.tokens / history.seconds
    waiting = history.waited / history.seconds
    figure, panes = panels(["tokens a second", "waiting for data", "padding spared by packing"], _HEIGHT)
    for axes, values in zip(panes, (speed, waiting, history.padding), strict=True):
        curve(axes, history.steps, values, history.stages)
        fit_y(axes, values, from_zero=True)
        steps_axis(axes, schedule, history.done)
    for axes in panes[1:]:
        axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}%"))
    panes[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    median = float(np.median(speed))
    waited = history.waiting
    padding = float(history.padding.mean())
    for axes, value, text in zip(
        panes, (median, waited, padding), (compact(median), percent(waited), percent(padding)), strict=True
    ):
        margin_labels(axes, [Label(value, text, BLUE, bold=True)])
    return figure

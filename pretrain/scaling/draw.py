"""Draw the learning curve: every run, the best of each size, and the law with its interval.

Runs that differ in the width of their encoder also have the steps and time that each took to reach a common error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from ernie.formatting import compact
from ernie.report.panels import (
    BLUE,
    DPI,
    FAINT,
    INK,
    MUTED,
    SMALL,
    VERMILION,
    Label,
    apart,
    margin_labels,
    panels,
    size,
    style,
)
from pretrain.scaling.answer import FAR, Curve, Race, race
from pretrain.scaling.points import best

BEYOND = 8.0  # times the largest size: how far the law is drawn
_HEIGHT = 3.0  # inches
_OFFSET: dict[str, Any] = {"textcoords": "offset points"}


def draw(found: Curve, file: Path, error: float | None = None) -> None:
    """Write the figure as PNG; `error` is the one whose size is asked for."""
    with style():
        figure = _figure(found, race(found), error)
        figure.savefig(file, dpi=DPI)


def _figure(found: Curve, raced: Race | None, error: float | None) -> Figure:
    titles = ["held-out error (nats a token) against tokens"]
    if raced:
        titles += [f"steps to {raced.error:.3f} against width", "seconds a step", f"minutes to {raced.error:.3f}"]
    figure, [learning, *factors] = panels(titles, _HEIGHT)
    _learning(learning, found, error)
    if raced:
        measures = [[run.steps, run.seconds_a_step, run.seconds / 60] for run in raced.runs]
        for axes, values in zip(factors, zip(*measures, strict=True), strict=True):
            _against_width(axes, [run.width for run in raced.runs], values)
    return figure


def _learning(axes: Axes, found: Curve, error: float | None) -> None:
    """Draw every run, each width's means, the best of each size, the law, and what was predicted of the largest size.

    With `error`, also the size that it needs, with its interval.
    """
    largest = found.best[-1].size
    answer = None if error is None else found.whole.size(error)
    end = largest * BEYOND
    if answer is not None and largest < answer.value <= largest * FAR:
        end = max(end, 2 * answer.value)
    sizes = np.geomspace(found.best[0].size, end, 80)
    law = [found.whole.error(size) for size in sizes]
    axes.fill_between(sizes, [error.low for error in law], [error.high for error in law], color=BLUE, alpha=0.12, lw=0)
    axes.plot(sizes, [error.value for error in law], color=BLUE, lw=1.2)
    widths = sorted({point.width for point in found.points})
    lines = [best([point for point in found.points if point.width == width]) for width in widths]
    for means in lines:
        axes.plot([p.size for p in means], [p.error for p in means], color=FAINT, lw=1)
    axes.plot([p.size for p in found.points], [p.error for p in found.points], "o", color=FAINT, ms=3)
    axes.plot([p.size for p in found.best], [p.error for p in found.best], "o", color=BLUE, ms=5)
    predicted = found.before.measured(largest)
    span = [[predicted.value - predicted.low], [predicted.high - predicted.value]]
    mark: dict[str, Any] = {"color": VERMILION, "ecolor": VERMILION, "elinewidth": 1, "capsize": 3, "ms": 5}
    axes.errorbar([largest], [predicted.value], yerr=span, fmt="_", **mark)
    below = (largest, min(predicted.low, found.best[-1].error))
    note = "predicted from smaller sizes"
    axes.annotate(note, below, (4, -4), color=VERMILION, size=SMALL, ha="right", va="top", **_OFFSET)
    margin = [Label(law[-1].value, "law, 95 %", BLUE)]
    if error is not None and answer is not None and sizes[0] <= answer.value <= end:
        reach = [[answer.value - answer.low], [min(answer.high, end) - answer.value]]
        axes.errorbar([answer.value], [error], xerr=reach, fmt="o", **mark | {"color": INK, "ecolor": INK})
        if answer.high > end:  # open: the runs do not bound it
            axes.plot([end], [error], ">", color=INK, ms=5, clip_on=False)
        margin.append(Label(error, f"{error:g}: {compact(answer.value)}", INK))
    axes.set_xscale("log")
    low, high = axes.get_ylim()
    heights = np.array([(means[0].error - low) / (high - low) for means in lines])
    labels = zip(widths, lines, apart(heights, 1.2 * SMALL / size(axes)[1]), strict=True)
    for width, means, height in labels:
        anchor: dict[str, Any] = {"xy": (means[0].size, height), "xycoords": ("data", "axes fraction")}
        axes.annotate(
            str(width or ""), xytext=(-6, 0), color=MUTED, size=SMALL, ha="right", va="center", **anchor, **_OFFSET
        )
    axes.set_xlim(sizes[0] / 2.2, sizes[-1])  # space for the widths
    margin_labels(axes, margin)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _against_width(axes: Axes, widths: list[int], values: tuple[float, ...]) -> None:
    """Draw `values` against the widths, from 0 up, and mark the least."""
    axes.plot(widths, values, color=BLUE, lw=1.2, marker="o", ms=5)
    least = int(np.argmin(values))
    axes.plot(widths[least], values[least], "o", color=VERMILION, ms=6)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator([float(width) for width in widths]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda width, _: f"{width:.0f}"))
    axes.set_ylim(0, 1.08 * max(values))

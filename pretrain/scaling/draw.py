"""Draw the learning curve: every run, the best of each size, and the law with its interval; for runs that differ in the
width of their encoder also the steps and time that each took to reach a common error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from ernie.report.panels import BLUE, DPI, FAINT, MUTED, SMALL, VERMILION, apart, panels, size, style
from ernie.report.words import compact
from pretrain.scaling.answer import Curve, Race, race

BEYOND = 8.0  # times the largest size: how far the law is drawn
_HEIGHT = 3.0  # inches
_OFFSET: dict[str, Any] = {"textcoords": "offset points"}


def draw(found: Curve, file: Path) -> None:
    """Write the figure as PNG."""
    with style():
        figure = _figure(found, race(found))
        figure.savefig(file, dpi=DPI)


def _figure(found: Curve, raced: Race | None) -> Figure:
    titles = ["held-out error (nats a token) against tokens"]
    if raced:
        titles += [f"steps to {raced.error:.3f} against width", "seconds a step", f"minutes to {raced.error:.3f}"]
    figure, [learning, *factors] = panels(titles, _HEIGHT)
    _learning(learning, found)
    if raced:
        measures = [[run.steps, run.seconds_a_step, run.seconds / 60] for run in raced.runs]
        for axes, values in zip(factors, zip(*measures, strict=True), strict=True):
            _against_width(axes, [run.width for run in raced.runs], values)
    return figure


def _learning(axes: Axes, found: Curve) -> None:
    """Draw every run, the best of each size, and the law fitted to all sizes but the largest with its interval."""
    sizes = np.geomspace(found.best[0].size, found.best[-1].size * BEYOND, 80)
    law = [found.before.error(size) for size in sizes]
    axes.fill_between(sizes, [error.low for error in law], [error.high for error in law], color=BLUE, alpha=0.12, lw=0)
    axes.plot(sizes, [error.value for error in law], color=BLUE, lw=1.2)
    widths = sorted({point.width for point in found.points})
    lines = [sorted((point.size, point.error) for point in found.points if point.width == width) for width in widths]
    for runs in lines:
        axes.plot(*zip(*runs, strict=True), color=FAINT, lw=1, marker="o", ms=3)
    axes.plot([p.size for p in found.best[:-1]], [p.error for p in found.best[:-1]], "o", color=BLUE, ms=5)
    last = (found.best[-1].size, found.best[-1].error)
    axes.plot(*last, "o", color=VERMILION, ms=6)
    axes.annotate("left out of the law", last, (-6, -12), color=VERMILION, size=SMALL, ha="right", **_OFFSET)
    axes.set_xscale("log")
    low, high = axes.get_ylim()
    heights = np.array([(runs[0][1] - low) / (high - low) for runs in lines])
    labels = zip(widths, lines, apart(heights, 1.2 * SMALL / size(axes)[1]), strict=True)
    for width, runs, height in labels:
        anchor: dict[str, Any] = {"xy": (runs[0][0], height), "xycoords": ("data", "axes fraction")}
        axes.annotate(
            str(width or ""), xytext=(-6, 0), color=MUTED, size=SMALL, ha="right", va="center", **anchor, **_OFFSET
        )
    axes.set_xlim(sizes[0] / 2.2, sizes[-1])  # space for the widths
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

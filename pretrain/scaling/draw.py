"""The learning curve as a figure: every run, the best of each size, the law with its interval."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from ernie.report.panels import BLUE, DPI, FAINT, MUTED, VERMILION, panels, style
from ernie.report.words import compact
from pretrain.scaling.answer import Curve

BEYOND = 8.0  # times the largest size: as far as the law is drawn


def draw(found: Curve, file: Path) -> None:
    """Write the figure as PNG."""
    with style():
        figure = _figure(found)
        figure.savefig(file, dpi=DPI)


def _figure(found: Curve) -> Figure:
    figure, [axes] = panels(["held-out error (nats a token) against tokens of text"], 4.0)
    sizes = np.geomspace(found.best[0].size, found.best[-1].size * BEYOND, 80)
    told = [found.before.error(size) for size in sizes]
    axes.fill_between(sizes, [one.low for one in told], [one.high for one in told], color=BLUE, alpha=0.12, lw=0)
    axes.plot(sizes, [one.value for one in told], color=BLUE, lw=1.2)
    for width in sorted({point.width for point in found.points}):
        runs = sorted((point.size, point.error) for point in found.points if point.width == width)
        axes.plot(*zip(*runs, strict=True), color=FAINT, lw=1, marker="o", ms=3)
        axes.annotate(
            str(width or ""),
            runs[0],
            color=MUTED,
            fontsize=7.5,
            ha="right",
            va="center",
            xytext=(-5, 0),
            textcoords="offset points",
        )
    axes.plot([p.size for p in found.best[:-1]], [p.error for p in found.best[:-1]], "o", color=BLUE, ms=5)
    axes.plot(found.best[-1].size, found.best[-1].error, "o", color=VERMILION, ms=6)
    axes.annotate(
        "left out of the law",
        (found.best[-1].size, found.best[-1].error),
        color=VERMILION,
        fontsize=8.5,
        xytext=(6, 6),
        textcoords="offset points",
    )
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: compact(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    return figure

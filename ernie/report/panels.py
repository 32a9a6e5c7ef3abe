"""Shared parts of all figures: colors, panels laid out in inches, labels that do not overlap.

Figures are created with matplotlib's objects, never pyplot, so that a caller's own plots are not affected.  The two
hues, blue and vermilion, are distinguishable for color-blind readers (Okabe and Ito, 2008); each panel also labels its
lines in words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from matplotlib import style as matplotlib_style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from ernie.formatting import exact

BLUE, VERMILION = "#0072B2", "#D55E00"
INK, MUTED, FAINT, PAPER = "#1f2933", "#65707c", "#d5dbe1", "#ffffff"
WIDTH = 9.0  # inches: as wide as the page's text at 100 pixels per inch
DPI = 200
SMALL, NORMAL = 8.5, 9.5  # points
TITLE_ABOVE = 20.0  # points above the panel
_LEFT, _RIGHT, _TOP, _BOTTOM = 0.6, 1.05, 0.52, 0.36  # inches around each panel
_EDGE = 2.0  # points from a panel's edge to its title

_STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": NORMAL,
    "text.color": INK,
    "text.parse_math": False,  # a task may have a $ in its name
    "axes.edgecolor": FAINT,
    "axes.labelcolor": MUTED,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": MUTED,
    "ytick.labelcolor": MUTED,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
}


class Label(NamedTuple):
    """A text in a panel's right margin, at the data coordinate `y`."""

    y: float
    text: str
    color: str = MUTED
    bold: bool = False


@contextmanager
def style() -> Iterator[None]:
    """Apply the style of all figures, overriding the user's settings, while they are created and saved."""
    with matplotlib_style.context(["default", _STYLE]):
        yield


def grid(count: int) -> tuple[int, int]:
    """Return the number of rows and columns for `count` panels."""
    columns = min(count, 2)
    return -(-count // columns), columns


def panels(titles: Sequence[str], height: float) -> tuple[Figure, list[Axes]]:
    """Return a figure with one panel per title, row by row, and its axes; `height` is a panel's, in inches.

    A panel's label describes it in words, for alternative text: the title, and the texts next to its lines.
    """
    rows, columns = grid(len(titles))
    cell_width, cell_height = WIDTH / 2, height + _TOP + _BOTTOM
    figure = Figure(figsize=(columns * cell_width, rows * cell_height), dpi=DPI)
    all_axes = []
    for index, title in enumerate(titles):
        row, column = divmod(index, columns)
        left, bottom = column * cell_width + _LEFT, (rows - 1 - row) * cell_height + _BOTTOM
        corner = (left / (columns * cell_width), bottom / (rows * cell_height))
        extent = ((cell_width - _LEFT - _RIGHT) / (columns * cell_width), height / (rows * cell_height))
        axes = figure.add_axes((*corner, *extent), label=title)
        axes.grid(axis="y", color=FAINT, linewidth=0.5)
        axes.set_axisbelow(True)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10]))
        look: dict[str, Any] = {"textcoords": "offset points", "xycoords": "axes fraction", "weight": "bold"}
        fitted = shortened(title, cell_width * 72 - 2 * _EDGE, NORMAL, bold=True)
        axes.annotate(fitted, (0, 1), (_EDGE - _LEFT * 72, TITLE_ABOVE), **look)
        all_axes.append(axes)
    return figure, all_axes


def say(axes: Axes, texts: Sequence[str]) -> None:
    """Add the texts next to a panel's lines to its label."""
    if texts:
        axes.set_label(f"{axes.get_label()}: {', '.join(texts)}")


def size(axes: Axes) -> tuple[float, float]:
    """Return a panel's width and height in points."""
    box = axes.get_window_extent()
    return box.width / DPI * 72, box.height / DPI * 72


def above(axes: Axes, points: float) -> float:
    """Return the y position `points` above a panel, as a fraction of its height."""
    return 1 + points / size(axes)[1]


def count_axis(axes: Axes, first: int, last: int, unit: str) -> None:
    """Set up the x axis with integers of `unit` (steps, epochs) from `first` to `last`."""
    axes.set_xlim(first, last)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 5, 10], min_n_ticks=2))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: exact(number)))
    look: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "color": MUTED, "size": SMALL}
    axes.annotate(unit, (0, 0), (-16, -6.5), ha="right", va="top", **look)  # on the line of the numbers


def logarithmic(axes: Axes, values: np.ndarray) -> bool:
    """Make the y axis logarithmic, with plain numbers, if all values are positive and one is ten times another.

    Returns whether it is.
    """
    if not len(values) or values.min() <= 0 or values.max() < 10 * values.min():
        return False
    axes.set_yscale("log")
    wide = values.max() > 100 * values.min()
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0), numticks=6))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    return True


def margin_labels(axes: Axes, labels: Sequence[Label]) -> None:
    """Write labels in the right margin at their heights, moved apart where they would overlap."""
    width, height = size(axes)
    gap = 1.35 * SMALL / height  # the height of a line, as a fraction of the panel's
    beside = 1 + 6 / width
    low, high = axes.get_ylim()
    wanted = np.array([(label.y - low) / (high - low) for label in labels])
    for label, place in zip(labels, apart(np.clip(wanted, 0, 1), gap), strict=True):
        axes.text(
            beside,
            place,
            label.text,
            transform=axes.transAxes,
            color=label.color,
            weight="bold" if label.bold else "normal",
            size=SMALL,
            va="center",
        )
    say(axes, [label.text for label in labels])


def apart(places: np.ndarray, gap: float) -> np.ndarray:
    """Move positions as little as possible, keeping their order, so that neighbors are at least `gap` apart."""
    order = np.argsort(places, kind="stable")
    sorted_places = places[order].astype(float)
    # Neighbors that overlap are merged into a group, centered on the mean of their wanted positions.
    groups: list[tuple[float, int]] = []  # the group's lowest position, its size
    for place in sorted_places:
        start, size = float(place), 1
        while groups and groups[-1][0] + groups[-1][1] * gap > start:
            before, members = groups.pop()
            center = (before * members + (start - members * gap) * size) / (members + size)
            start, size = center, members + size
        groups.append((start, size))
    spread = np.concatenate([start + gap * np.arange(size) for start, size in groups] or [np.empty(0)])
    moved = np.empty_like(spread)
    moved[order] = spread
    return moved


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """Return the width of a text in points."""
    path = TextPath((0, 0), text, size=size, prop=FontProperties(weight="bold" if bold else "normal"))
    # From the control points: fonts have them at the extrema of an outline, and evaluating the curves takes five times
    # as long.  The points that close an outline are arbitrary.
    return float(np.ptp(path.vertices[path.codes != path.CLOSEPOLY, 0]))


def shortened(text: str, max_width: float, size: float, *, bold: bool = False) -> str:
    """Shorten a text to `max_width` points by eliding its middle: names often differ at their ends."""
    kept = len(text)
    short = text
    while kept > 2 and text_width(short, size, bold=bold) > max_width:
        kept -= 1
        short = f"{text[: (kept + 1) // 2]}…{text[-(kept // 2) :]}"
    return short

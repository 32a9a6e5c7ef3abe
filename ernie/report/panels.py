"""What all figures share: colours, panels set out in inches, labels that keep apart.

Figures are made through matplotlib's objects, never pyplot, so that nothing of a caller's own plots is touched.
Two hues, blue and vermilion, which people who are colour-blind tell apart (Okabe and Ito, 2008); each panel says in
words what its lines are.
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
from matplotlib.ticker import FuncFormatter, MaxNLocator

from ernie.report.words import exact

BLUE, VERMILION = "#0072B2", "#D55E00"
INK, MUTED, FAINT, PAPER = "#1f2933", "#65707c", "#d5dbe1", "#ffffff"
WIDTH = 9.0  # inches: at 100 pixels an inch as wide as the page's text
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
    """A text at the height `y` of a panel's data, to stand in its right margin."""

    y: float
    text: str
    colour: str = MUTED
    bold: bool = False


@contextmanager
def style() -> Iterator[None]:
    """The look of all figures, whatever the user's own settings, for the time they are made and saved."""
    with matplotlib_style.context(["default", _STYLE]):
        yield


def grid(count: int) -> tuple[int, int]:
    """The rows and columns in which so many panels stand."""
    columns = min(count, 2)
    return -(-count // columns), columns


def panels(titles: Sequence[str], height: float) -> tuple[Figure, list[Axes]]:
    """A figure with one panel a title, row by row; `height` is a panel's own, in inches.

    A panel's label says in words what it shows: the title, and what is later written beside its lines.
    """
    rows, columns = grid(len(titles))
    wide, tall = WIDTH / 2, height + _TOP + _BOTTOM
    figure = Figure(figsize=(columns * wide, rows * tall), dpi=DPI)
    made = []
    for index, title in enumerate(titles):
        row, column = divmod(index, columns)
        left, bottom = column * wide + _LEFT, (rows - 1 - row) * tall + _BOTTOM
        box = (left / (columns * wide), bottom / (rows * tall))
        room = ((wide - _LEFT - _RIGHT) / (columns * wide), height / (rows * tall))
        axes = figure.add_axes((*box, *room), label=title)
        axes.grid(axis="y", color=FAINT, linewidth=0.5)
        axes.set_axisbelow(True)
        axes.yaxis.set_major_locator(MaxNLocator(nbins=4, steps=[1, 2, 2.5, 5, 10]))
        beside: dict[str, Any] = {"textcoords": "offset points", "xycoords": "axes fraction", "weight": "bold"}
        fitted = shortened(title, wide * 72 - 2 * _EDGE, NORMAL, bold=True)
        axes.annotate(fitted, (0, 1), (_EDGE - _LEFT * 72, TITLE_ABOVE), **beside)
        made.append(axes)
    return figure, made


def say(axes: Axes, texts: Sequence[str]) -> None:
    """Add to a panel's label what is written beside its lines."""
    if texts:
        axes.set_label(f"{axes.get_label()}: {', '.join(texts)}")


def size(axes: Axes) -> tuple[float, float]:
    """A panel's width and height in points."""
    box = axes.get_window_extent()
    return box.width / DPI * 72, box.height / DPI * 72


def above(axes: Axes, points: float) -> float:
    """The place so many points above a panel, as a share of its height."""
    return 1 + points / size(axes)[1]


def count_axis(axes: Axes, first: int, last: int, unit: str) -> None:
    """Whole numbers of `unit` (steps, epochs) along x, from `first` to `last`."""
    axes.set_xlim(first, last)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True, steps=[1, 2, 5, 10], min_n_ticks=2))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: exact(number)))
    look: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "color": MUTED, "size": SMALL}
    axes.annotate(unit, (0, 0), (-16, -6.5), ha="right", va="top", **look)  # on the line of the numbers


def margin_labels(axes: Axes, labels: Sequence[Label]) -> None:
    """Write labels beside the panel at their heights, pushed apart where they would touch."""
    width, height = size(axes)
    gap = 1.35 * SMALL / height  # a line's height, as a share of the panel's
    beside = 1 + 6 / width
    low, high = axes.get_ylim()
    wanted = np.array([(label.y - low) / (high - low) for label in labels])
    for label, place in zip(labels, apart(np.clip(wanted, 0, 1), gap), strict=True):
        axes.text(
            beside,
            place,
            label.text,
            transform=axes.transAxes,
            color=label.colour,
            weight="bold" if label.bold else "normal",
            size=SMALL,
            va="center",
        )
    say(axes, [label.text for label in labels])


def apart(places: np.ndarray, gap: float) -> np.ndarray:
    """Places moved as little as keeps their order and neighbours at least `gap` from each other."""
    order = np.argsort(places, kind="stable")
    sorted_places = places[order].astype(float)
    # Neighbours that touch become a group around the mean of where its members wanted to be.
    groups: list[tuple[float, int]] = []  # the group's lowest place, its size
    for place in sorted_places:
        start, size = float(place), 1
        while groups and groups[-1][0] + groups[-1][1] * gap > start:
            before, members = groups.pop()
            centre = (before * members + (start - members * gap) * size) / (members + size)
            start, size = centre, members + size
        groups.append((start, size))
    spread = np.concatenate([start + gap * np.arange(size) for start, size in groups] or [np.empty(0)])
    moved = np.empty_like(spread)
    moved[order] = spread
    return moved


def text_width(text: str, size: float, *, bold: bool = False) -> float:
    """How wide a text is, in points."""
    path = TextPath((0, 0), text, size=size, prop=FontProperties(weight="bold" if bold else "normal"))
    # By its points: fonts have them where an outline is widest, and to follow every curve takes five times as long.
    # Those that close an outline are anywhere.
    return float(np.ptp(path.vertices[path.codes != path.CLOSEPOLY, 0]))


def shortened(text: str, room: float, size: float, *, bold: bool = False) -> str:
    """The text, its middle cut out where it is wider than `room` points: names often differ in their ends."""
    kept = len(text)
    short = text
    while kept > 2 and text_width(short, size, bold=bold) > room:
        kept -= 1
        short = f"{text[: (kept + 1) // 2]}…{text[-(kept // 2) :]}"
    return short

"""The figure of a trade-off: score against time, and the models that no other outdoes."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ernie.formatting import plural
from ernie.report import page
from ernie.report.chapter import Chapter, write_chapters
from ernie.report.html_table import table
from ernie.report.panels import BLUE, MUTED, PAPER, SMALL, Label, margin_labels, panels, shortened, style
from finetune.report.tradeoff import Tradeoff

_MARKS = (("o", "●"), ("s", "■"), ("^", "▲"), ("D", "◆"), ("v", "▼"))  # of models, as matplotlib and as a text has it
_NAME = 58.0  # points: the widest name of a model in the margin


def chapter(found: Tradeoff) -> Chapter:
    """Return the figure with its note."""
    note = (
        "Each dot is a model in one precision of matrix products. For filled ones, on the line, no other is both at "
        "least as good and at least as fast. The table below has all figures."
    )
    return Chapter("tradeoff", "Score, size and time", note, draw(found))


def section(found: Tradeoff) -> list[str]:
    """Return the table and what its figures are, as parts of a page."""
    return [table("tradeoff", found.table()), page.paragraph(found.explained, "note")]


def page_of(found: Tradeoff, title: str) -> str:
    """Return a page with the figure and the table."""
    with style():
        chapters = write_chapters([chapter(found)], None)
    state = f"{plural(len(found.points), 'operating point')} on {plural(found.rows, 'row')}"
    return page.page(title, state, [*chapters, *section(found)])


def draw(found: Tradeoff) -> Figure:
    """Draw the score of each operating point against the milliseconds of a row alone."""
    figure, (axes,) = panels([f"{found.metric}, against milliseconds for a row alone"], 2.6)
    best = found.best
    line = [(point.milliseconds, point.score) for point in best]
    axes.plot(*np.array(line).T, color=BLUE, linewidth=1.2, drawstyle="steps-post")
    models = list(dict.fromkeys(point.model for point in found.points))
    for point in found.points:
        color, (marker, _) = BLUE if point in best else MUTED, _MARKS[models.index(point.model) % len(_MARKS)]
        look: dict[str, Any] = {"color": color, "markerfacecolor": color if point in best else PAPER, "markersize": 6}
        axes.plot(point.milliseconds, point.score, marker, clip_on=False, zorder=3, **look)
        place, align = ((0, 6), "bottom") if point.precision == "fp32" else ((0, -6), "top")
        name: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "va": align, "size": SMALL}
        axes.annotate(point.precision, (point.milliseconds, point.score), place, color=color, **name)
    axes.set_xlim(0, 1.15 * max(point.milliseconds for point in found.points))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
    axes.margins(y=0.15)
    labels = []
    for number, model in enumerate(models):
        score = max(point.score for point in found.points if point.model == model)
        color = BLUE if any(point.model == model for point in best) else MUTED
        sign = _MARKS[number % len(_MARKS)][1]
        labels.append(Label(score, f"{sign} {shortened(model, _NAME, SMALL)}", color))
    margin_labels(axes, labels)
    return figure

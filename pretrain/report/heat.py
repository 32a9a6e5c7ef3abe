"""The forgetting ledger as a heat map: the darker a cell, the further the task stood below its own best so far."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ernie.metrics import Score
from pretrain.ledger import Ledger
from pretrain.report.panels import DPI, FAINT, INK, MUTED, NORMAL, SMALL, WIDTH, text_width
from pretrain.report.words import percent
from pretrain.schedule import Schedule

_COLOURS = LinearSegmentedColormap.from_list("forgetting", ["#f3f5f7", "#fcd9b8", "#e8801f", "#8f3b00"])
_LEAST_SCALE = 0.1  # the darkest colour is never less than 10 % below the best: noise is to look like noise
_ROW, _HEAD, _LEFT, _WIDEST = 0.52, 0.62, 1.0, 1.6  # inches


def draw_ledger(ledger: Ledger, schedule: Schedule) -> Figure:
    """The matrix stage x task, and under it what each task has forgotten by now."""
    rows, columns = len(ledger.stages), len(ledger.tasks)
    width = min(_WIDEST, (WIDTH - _LEFT - 0.1) / columns)
    tall = _HEAD + (rows + 1) * _ROW + 0.75
    figure = Figure(figsize=(WIDTH, tall), dpi=DPI)
    # One unit of the axes is one inch, so that text can be measured against cells.
    axes = figure.add_axes((0, 0, 1, 1), xlim=(-_LEFT, WIDTH - _LEFT), ylim=(tall - _HEAD, -_HEAD))
    axes.set_axis_off()
    shortfalls = [ledger.shortfalls(task) for task in ledger.tasks]
    scale = max([_LEAST_SCALE, *(found for column in shortfalls for found in column if found is not None)])
    for column, task in enumerate(ledger.tasks):
        _head(axes, (column + 0.5) * width, task, width)
        for row, score in enumerate(ledger.column(task)):
            _cell(axes, (column * width, row * _ROW), width, score, shortfalls[column][row], scale)
        _foot(axes, ((column + 0.5) * width, (rows + 0.62) * _ROW), ledger, task)
    for row, stage in enumerate(ledger.stages):
        known = stage < len(schedule.table)
        _row_name(axes, row, f"after stage {stage + 1}", f"{schedule.stage_ends[stage]:,} steps" if known else "")
    axes.text(-0.12, (rows + 0.62) * _ROW, "forgotten", ha="right", va="center", weight="bold")
    _scale(axes, (rows + 1.35) * _ROW, scale)
    return figure


def _head(axes: Axes, middle: float, task: str, width: float) -> None:
    """The task's name, broken at its underscores, as large as its longest word allows."""
    lines = task.replace("_", "_\n").split("\n")
    widest = max(text_width(line, NORMAL, bold=True) for line in lines)
    size = min(NORMAL, NORMAL * (width - 0.06) * 72 / widest)
    axes.text(middle, -0.08, "\n".join(lines), ha="center", va="bottom", size=size, weight="bold", linespacing=1.1)


def _cell(
    axes: Axes, corner: tuple[float, float], width: float, score: Score | None, short: float | None, scale: float
) -> None:
    x, y = corner[0] + 0.02, corner[1] + 0.02
    w, h = width - 0.04, _ROW - 0.04
    if score is None or short is None:
        axes.add_patch(Rectangle((x, y), w, h, facecolor="none", edgecolor=FAINT, linewidth=0.5, linestyle=(0, (2, 3))))
        return
    axes.add_patch(Rectangle((x, y), w, h, facecolor=_COLOURS(short / scale), linewidth=0))
    colour = "white" if short / scale > 0.75 else INK
    value = f"{score.value:.3f}"
    interval = f"{score.low:.3f}–{score.high:.3f}"
    size = min(SMALL, SMALL * (w - 0.06) * 72 / text_width(interval, SMALL))
    axes.text(x + w / 2, y + h * 0.36, value, ha="center", va="center", color=colour)
    axes.text(x + w / 2, y + h * 0.74, interval, ha="center", va="center", size=size, color=colour, alpha=0.85)


def _foot(axes: Axes, place: tuple[float, float], ledger: Ledger, task: str) -> None:
    forgotten = ledger.forgetting(task)
    if forgotten is not None:
        clear = ledger.has_forgotten(task)
        text = f"{percent(forgotten)}{' *' if clear else ''}"
        axes.text(*place, text, ha="center", va="center", weight="bold" if clear else "normal")


def _row_name(axes: Axes, row: int, name: str, steps: str) -> None:
    axes.text(-0.12, (row + 0.37) * _ROW, name, ha="right", va="center")
    axes.text(-0.12, (row + 0.75) * _ROW, steps, ha="right", va="center", size=SMALL, color=MUTED)


def _scale(axes: Axes, top: float, scale: float) -> None:
    """What the colours mean."""
    for i in range(60):
        axes.add_patch(Rectangle((i * 0.02, top), 0.021, 0.11, facecolor=_COLOURS(i / 59), linewidth=0))
    note: dict[str, Any] = {"size": SMALL, "color": MUTED, "va": "center"}
    axes.text(-0.12, top + 0.055, "at its best", ha="right", **note)
    says = f"{percent(scale)} below its own best so far      * the intervals of best and last are apart"
    axes.text(1.28, top + 0.055, says, **note)

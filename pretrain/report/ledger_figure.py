"""The forgetting ledger as a heat map and as a table: the stronger a cell's color, the further below its own best."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ernie.formatting import percent, plural
from ernie.metrics import Score
from ernie.report.html_table import Cell, heat_table
from ernie.report.panels import DPI, FAINT, INK, MUTED, NORMAL, SMALL, WIDTH, shortened, text_width
from pretrain.ledger import Ledger
from pretrain.schedule import Schedule

# Light enough that dark text on it always has a contrast of 4.5.
_COLORS = LinearSegmentedColormap.from_list("forgetting", ["#f3f5f7", "#fcd9b8", "#e0751a"])
_LEAST_SCALE = 0.1  # the strongest color means at least 10% below the best, so that noise looks like noise
_ROW, _LINE, _LEFT, _WIDEST, _FOOT = 0.52, 0.155, 1.1, 1.6, 1.05  # inches
_SMALLEST = 5.5  # points


def draw_ledger(ledger: Ledger, schedule: Schedule) -> Figure:
    """Draw the matrix of stages x tasks, and below it what each task has forgotten so far."""
    width = min(_WIDEST, (WIDTH - _LEFT - 0.1) / len(ledger.tasks))
    headings, size = _headings(ledger.tasks, (width - 0.06) * 72)
    above = max(map(len, headings)) * _LINE + 0.4
    bottom = len(ledger.stages) * _ROW
    height = above + bottom + _FOOT
    figure = Figure(figsize=(WIDTH, height), dpi=DPI)
    # Axes units are inches, so that the size of text can be compared with that of cells.
    axes = figure.add_axes((0, 0, 1, 1), xlim=(-_LEFT, WIDTH - _LEFT), ylim=(bottom + _FOOT, -above))
    axes.set_axis_off()
    scale = color_scale(ledger)
    for column, (task, lines) in enumerate(zip(ledger.tasks, headings, strict=True)):
        _draw_column(axes, ledger, task, column * width, width, scale)
        for row, line in enumerate(reversed(lines)):
            y = -0.26 - row * _LINE
            axes.text((column + 0.5) * width, y, line, ha="center", va="baseline", size=size, weight="bold")
    for row, stage in enumerate(ledger.stages):
        known = stage < len(schedule.table)
        _draw_row_name(axes, row, f"after stage {stage + 1}", f"{schedule.stage_ends[stage]:,} steps" if known else "")
    _draw_foot(axes, bottom, scale)
    return figure


def color_scale(ledger: Ledger) -> float:
    """The fraction below its best at which a task's cell has the strongest color."""
    return max([_LEAST_SCALE, *(short for task in ledger.tasks for short in ledger.shortfalls(task) if short)])


def _headings(tasks: list[str], width: float) -> tuple[list[list[str]], float]:
    """Each task's name broken at underscores into lines of at most `width` points, and the font size."""
    longest = max(text_width(word, NORMAL, bold=True) for task in tasks for word in task.split("_"))
    size = max(_SMALLEST, min(NORMAL, 0.98 * NORMAL * width / longest))
    headings = []
    for task in tasks:
        lines: list[str] = []
        for word in task.split("_"):
            if lines and text_width(f"{lines[-1]}_{word}", size, bold=True) <= width:
                lines[-1] += f"_{word}"
            else:
                lines.append(word)
        headings.append([shortened(line, width, size, bold=True) for line in lines])
    return headings, size


def _draw_column(axes: Axes, ledger: Ledger, task: str, left: float, width: float, scale: float) -> None:
    scores = ledger.column(task)
    for row, (score, short) in enumerate(zip(scores, ledger.shortfalls(task), strict=True)):
        _draw_cell(axes, left, row * _ROW, width, score, None if short is None else short / scale)
    forgotten = ledger.forgetting(task)
    if forgotten is None:
        return
    metric = next(score.name for score in scores if score is not None)
    axes.text(left + width / 2, -0.09, metric, ha="center", va="baseline", size=SMALL, color=MUTED)
    significant = ledger.has_forgotten(task)
    text = f"{percent(forgotten)} *" if significant else percent(forgotten)
    weight = "bold" if significant else "normal"
    axes.text(left + width / 2, len(scores) * _ROW + 0.32, text, ha="center", va="center", weight=weight)


def _draw_cell(axes: Axes, x: float, y: float, width: float, score: Score | None, shade: float | None) -> None:
    w, h = width - 0.04, _ROW - 0.04
    corner = (x + 0.02, y + 0.02)
    if score is None or shade is None:
        axes.add_patch(Rectangle(corner, w, h, facecolor="none", edgecolor=FAINT, linewidth=0.5, linestyle=(0, (2, 3))))
        return
    axes.add_patch(Rectangle(corner, w, h, facecolor=_COLORS(shade), linewidth=0))
    interval = f"[{score.low:.3f}, {score.high:.3f}]"
    size = min(SMALL, SMALL * (w - 0.06) * 72 / text_width(interval, SMALL))
    middle: dict[str, Any] = {"ha": "center", "va": "center", "color": INK}
    axes.text(x + width / 2, y + 0.02 + h * 0.36, f"{score.value:.3f}", **middle)
    axes.text(x + width / 2, y + 0.02 + h * 0.74, interval, size=size, **middle)


def _draw_row_name(axes: Axes, row: int, name: str, steps: str) -> None:
    axes.text(-0.12, (row + 0.38) * _ROW, name, ha="right", va="center")
    axes.text(-0.12, (row + 0.73) * _ROW, steps, ha="right", va="center", size=SMALL, color=MUTED)


def _draw_foot(axes: Axes, bottom: float, scale: float) -> None:
    """Draw the name of the last row, and the legend of the colors."""
    axes.text(-0.12, bottom + 0.32, "forgotten", ha="right", va="center", weight="bold")
    top = bottom + 0.72
    for i in range(60):
        axes.add_patch(Rectangle((0.02 + i * 0.02, top), 0.021, 0.11, facecolor=_COLORS(i / 59), linewidth=0))
    note: dict[str, Any] = {"size": SMALL, "color": MUTED, "va": "center"}
    axes.text(-0.12, top + 0.055, "at its best", ha="right", **note)
    text = f"{percent(scale)} below its own best so far      * below it in 97.5 % of the draws"
    axes.text(1.32, top + 0.055, text, **note)


def ledger_table(ledger: Ledger, schedule: Schedule) -> str:
    """A row for each finished stage, a column for each task, and a last row with what each has forgotten so far."""
    scale = color_scale(ledger)
    columns = [_table_column(ledger, task, scale) for task in ledger.tasks]
    names = [Cell("after"), *(_stage_cell(schedule, stage) for stage in ledger.stages), Cell("forgotten")]
    return heat_table("Forgetting ledger", list(zip(names, *columns, strict=True)))


def _table_column(ledger: Ledger, task: str, scale: float) -> list[Cell]:
    scores = ledger.column(task)
    metric = next((score.name for score in scores if score is not None), "")
    cells = [
        _score_cell(score, None if short is None else short / scale)
        for score, short in zip(scores, ledger.shortfalls(task), strict=True)
    ]
    forgotten = ledger.forgetting(task)
    text = "" if forgotten is None else percent(forgotten) + (" *" if ledger.has_forgotten(task) else "")
    return [Cell(task, metric), *cells, Cell(text)]


def _score_cell(score: Score | None, shade: float | None) -> Cell:
    return Cell("") if score is None else Cell(f"{score.value:.3f}", f"[{score.low:.3f}, {score.high:.3f}]", shade)


def _stage_cell(schedule: Schedule, stage: int) -> Cell:
    """The heading of a row; without the steps for a stage that a changed schedule no longer has."""
    known = stage < len(schedule.table)
    return Cell(f"stage {stage + 1}", plural(int(schedule.stage_ends[stage]), "step") if known else "")

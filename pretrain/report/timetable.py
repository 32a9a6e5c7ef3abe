"""The schedule as a picture: which task had how many steps in which stage."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from pretrain.report.panels import (
    DPI,
    INK,
    MUTED,
    NORMAL,
    SMALL,
    VERMILION,
    WIDTH,
    shortened,
    steps_axis,
    text_width,
)
from pretrain.report.words import compact
from pretrain.schedule import Schedule

_SHARES = LinearSegmentedColormap.from_list("share", ["#e4eef6", "#0b5e94"])
_NAMES, _ROW = 1.75, 0.36  # inches for the names of tasks, and a row's height


def draw_schedule(schedule: Schedule, done: int) -> Figure:
    """The table of stages and tasks: stages along x by their steps, in each cell the task's steps, darker where they
    are a larger share of the stage."""
    tasks, total = schedule.tasks, len(schedule)
    tall = len(tasks) * _ROW + 0.75
    figure = Figure(figsize=(WIDTH, tall), dpi=DPI)
    wide = WIDTH - _NAMES - 0.75
    axes = figure.add_axes((_NAMES / WIDTH, 0.4 / tall, wide / WIDTH, len(tasks) * _ROW / tall))
    axes.set_ylim(len(tasks), 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    steps_axis(axes, schedule, total)
    for row, task in enumerate(tasks):
        name = shortened(task, (_NAMES - 0.2) * 72, NORMAL)
        axes.text(-0.01, row + 0.5, name, transform=axes.get_yaxis_transform(), ha="right", va="center")
        for stage, table in enumerate(schedule.table):
            if steps := table.get(task):
                _draw_cell(axes, schedule, stage, row, steps, wide * 72 / total)
        steps = sum(table.get(task, 0) for table in schedule.table)
        end: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center", "color": MUTED, "size": SMALL}
        axes.text(1.01, row + 0.5, f"{compact(steps)} in all", **end)
    if 0 < done < total:
        axes.axvline(done, color=VERMILION, linewidth=1.5)
        axes.text(done, len(tasks) + 0.02, "now", color=VERMILION, size=SMALL, ha="center", va="top", weight="bold")
    return figure


def _draw_cell(axes: Axes, schedule: Schedule, stage: int, row: int, steps: int, points_a_step: float) -> None:
    start, length = schedule.stage_start(stage), schedule.stage_length(stage)
    share = steps / length
    edge = 1.5 / points_a_step  # a gap of the same width on the paper whatever the run's length
    box = Rectangle((start, row + 0.05), max(length - edge, length * 0.5), 0.9, facecolor=_SHARES(share), linewidth=0)
    axes.add_patch(box)
    text = compact(steps)
    room, needed = length * points_a_step, text_width(text, SMALL) + 4
    fits, fits_upright = needed <= room, needed <= _ROW * 72 and SMALL + 2 <= room
    if fits or fits_upright:
        colour = "white" if share > 0.5 else INK
        turned = 0 if fits else 90
        axes.text(
            start + length / 2, row + 0.5, text, ha="center", va="center", rotation=turned, color=colour, size=SMALL
        )

"""A figure of the schedule: how many steps each task has in each stage."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ernie.formatting import compact
from ernie.report.panels import (
    DPI,
    INK,
    MUTED,
    NORMAL,
    SMALL,
    VERMILION,
    WIDTH,
    above,
    shortened,
    text_width,
)
from pretrain.report.steps import steps_axis
from pretrain.schedule import Schedule

_SHARES = LinearSegmentedColormap.from_list("share", ["#e3eef7", "#62a9d8"])  # light enough for dark text
_ROW, _BOTTOM, _RIGHT, _MOST_NAME = 0.36, 0.4, 0.75, 2.6  # inches
_TO_COME = 0.45  # opacity of future steps


def draw_schedule(schedule: Schedule, done: int) -> Figure:
    """Draw the table of stages and tasks: stages along x by their steps, in each cell the task's steps, darker for a
    larger share of the stage, and pale where they are still to come."""
    tasks, total = schedule.tasks, len(schedule)
    left = min(_MOST_NAME, max(text_width(task, NORMAL) for task in tasks) / 72) + 0.25
    rows, width = len(tasks) * _ROW, WIDTH - left - _RIGHT
    height = rows + _BOTTOM + (0.35 if done >= total else 0.55)
    figure = Figure(figsize=(WIDTH, height), dpi=DPI)
    axes = figure.add_axes((left / WIDTH, _BOTTOM / height, width / WIDTH, rows / height))
    axes.set_ylim(len(tasks), 0)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    steps_axis(axes, schedule, total)
    for row, task in enumerate(tasks):
        counts = [stage.get(task, 0) for stage in schedule.table]
        _draw_names(axes, row, shortened(task, _MOST_NAME * 72, NORMAL), f"{compact(sum(counts))} in all")
        for stage, steps in enumerate(counts):
            if steps:
                _draw_cell(axes, schedule, (row, stage), steps, done, width * 72 / total)
    if done < total:
        now: dict[str, Any] = {
            "transform": axes.get_xaxis_transform(),
            "color": VERMILION,
            "size": SMALL,
            "weight": "bold",
        }
        axes.text(done, above(axes, 19), f"now at {compact(done)}", ha="center", **now)
    return figure


def _draw_names(axes: Axes, row: int, name: str, total: str) -> None:
    style: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "va": "center"}
    axes.text(-0.01, row + 0.5, name, ha="right", **style)
    axes.text(1.01, row + 0.5, total, color=MUTED, size=SMALL, **style)


def _draw_cell(
    axes: Axes, schedule: Schedule, cell: tuple[int, int], steps: int, done: int, points_a_step: float
) -> None:
    row, stage = cell
    start, length = schedule.stage_start(stage), schedule.stage_length(stage)
    gap = min(1.5 / points_a_step, length / 2)  # of the same width on paper for any length of the run
    passed = min(max(done - start, 0), length - gap)
    look: dict[str, Any] = {"facecolor": _SHARES(steps / length), "linewidth": 0}
    axes.add_patch(Rectangle((start, row + 0.05), passed, 0.9, **look))
    axes.add_patch(Rectangle((start + passed, row + 0.05), length - gap - passed, 0.9, alpha=_TO_COME, **look))
    text = compact(steps)
    available, needed = length * points_a_step, text_width(text, SMALL) + 4
    horizontal = needed <= available
    if horizontal or (needed <= _ROW * 72 and SMALL <= available):
        middle: dict[str, Any] = {"ha": "center", "va": "center", "rotation": 0 if horizontal else 90}
        axes.text(
            start + (length - gap) / 2, row + 0.5, text, color=INK if done > start else MUTED, size=SMALL, **middle
        )

"""The x axis that most figures of a run share: its steps, divided into stages."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes

from ernie.report.panels import FAINT, MUTED, SMALL, above, count_axis, size, text_width
from pretrain.schedule import Schedule


def steps_axis(axes: Axes, schedule: Schedule, done: int, first_stage: int = 0) -> None:
    """Lay out steps along x from the start of `first_stage` to `done`, the stages separated by lines and numbered."""
    first = schedule.stage_start(first_stage)
    count_axis(axes, first, done, "step")
    high = above(axes, 5)  # clear of the tick label at the very top
    look: dict[str, Any] = {"color": MUTED, "size": SMALL}
    axes.text(-0.012, high, "stage", ha="right", transform=axes.transAxes, **look)
    points_a_step = size(axes)[0] / (done - first)
    for stage in range(first_stage, len(schedule.table)):
        start, end = schedule.stage_start(stage), min(done, int(schedule.stage_ends[stage]))
        number = str(stage + 1)
        if (end - start) * points_a_step > text_width(number, SMALL) + 2:
            axes.text((start + end) / 2, high, number, ha="center", transform=axes.get_xaxis_transform(), **look)
        if end < done:
            axes.axvline(end, color=FAINT, linewidth=0.8, zorder=1)


def arrival_stage(schedule: Schedule, task: str) -> int:
    """The stage in which a task has its first step; 0 for a task that a changed schedule dropped."""
    return next((stage for stage, steps in enumerate(schedule.table) if steps.get(task)), 0)

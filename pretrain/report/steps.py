"""The axis that most figures of a run share: its steps, and where its stages begin."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes

from ernie.report.panels import FAINT, MUTED, SMALL, above, count_axis, size, text_width
from pretrain.schedule import Schedule


def steps_axis(axes: Axes, schedule: Schedule, done: int) -> None:
    """Steps along x up to `done`, the schedule's stages parted by lines and numbered above."""
    count_axis(axes, done)
    height = above(axes, 5)  # clear of the label of a tick at the very top
    look: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "color": MUTED, "size": SMALL}
    axes.text(-0.012 * done, height, "stage", ha="right", **look)
    points_a_step = size(axes)[0] / done
    for stage in range(len(schedule.table)):
        start, end = schedule.stage_start(stage), min(done, int(schedule.stage_ends[stage]))
        number = str(stage + 1)
        if (end - start) * points_a_step > text_width(number, SMALL) + 2:
            axes.text((start + end) / 2, height, number, ha="center", **look)
        if end < done:
            axes.axvline(end, color=FAINT, linewidth=0.8, zorder=1)

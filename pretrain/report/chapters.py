"""The figures of a report in order, each with a note on how to read it."""

from __future__ import annotations

from collections.abc import Iterator

from ernie.formatting import percent
from ernie.report.chapter import Chapter
from pretrain.report.course import draw_optimization, draw_speed
from pretrain.report.evidence import Evidence
from pretrain.report.heat import color_scale, draw_ledger
from pretrain.report.learning import draw_losses, draw_metrics
from pretrain.report.ledger_table import ledger_table
from pretrain.report.timetable import draw_schedule


def chapters(evidence: Evidence) -> Iterator[Chapter]:
    """Yield the figures for which the run has data so far."""
    history, schedule = evidence.history, evidence.schedule
    if evidence.ledger.stages:
        scale = percent(color_scale(evidence.ledger))
        note = (
            "Each task's held-out metric after each stage, with its 95% interval. The stronger the orange, the further "
            f"the task stands below its own best so far; the strongest stands for {scale}. Forgotten is (best − last) "
            "/ best; a star marks where the last is below the best in 97.5 % of the draws of held-out documents."
        )
        figure, table = draw_ledger(evidence.ledger, schedule), ledger_table(evidence.ledger, schedule)
        yield Chapter("ledger", "Forgetting ledger", note, figure, table)
    if history.losses:
        note = (
            "A panel begins with the stage in which its task arrives. The line is a moving average, the pale band the "
            "losses that it averages; the number is the mean at the end, as in the table of tasks."
        )
        yield Chapter("losses", "Loss in training", note, draw_losses(history, schedule))
    if history.measurements:
        note = (
            "Measured on documents that are never trained on, with 95% intervals. The dashed line is what always "
            "answering the most frequent label scores: a task whose interval lies above it has learned something."
        )
        yield Chapter("metrics", "Held-out metrics", note, draw_metrics(history, schedule))
    note = (
        "Stages from left to right, as wide as they have steps. In each cell the task's steps in that stage; the "
        "stronger its blue, the larger its share of the stage."
    )
    yield Chapter("schedule", "Schedule", note, draw_schedule(schedule, history.done))
    if history.done:
        note = "The learning rate of each step, and the norm of the whole gradient before clipping."
        clip = evidence.config.train.clip
        yield Chapter("optimization", "Optimization", note, draw_optimization(history, schedule, clip))
        note = (
            "Tokens of each step by its duration; the share of it that waited for data; and the share of padding that "
            "the same batches would have without packing. Beside each panel stands the figure for the whole run."
        )
        yield Chapter("speed", "Speed", note, draw_speed(history, schedule))

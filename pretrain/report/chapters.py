"""The figures of a report in their order, each with the sentence that says how to read it."""

from __future__ import annotations

from collections.abc import Iterator

from ernie.report.chapter import Chapter
from pretrain.report.course import draw_optimization, draw_speed
from pretrain.report.evidence import Evidence
from pretrain.report.heat import draw_ledger
from pretrain.report.learning import draw_losses, draw_metrics
from pretrain.report.timetable import draw_schedule


def chapters(evidence: Evidence) -> Iterator[Chapter]:
    """The figures that the run has something for, so far."""
    history, schedule = evidence.history, evidence.schedule
    if evidence.ledger.stages:
        note = (
            "Each task's held-out metric after each stage, with its 95% interval. The darker a cell, the further the "
            "task stands below its own best so far; a dashed cell: the task had not arrived. Forgotten is "
            "(best − last) / best."
        )
        yield Chapter("ledger", "Forgetting ledger", note, draw_ledger(evidence.ledger, schedule))
    if history.losses:
        note = "The smooth line is a moving average, the pale one the range of what it averages."
        yield Chapter("losses", "Loss in training", note, draw_losses(history, schedule))
    if history.measurements:
        note = (
            "Measured on documents that are never trained on, with 95% intervals. The dashed line is what always "
            "answering the most frequent label scores: a task whose interval lies above it has learnt something."
        )
        yield Chapter("metrics", "Held-out metrics", note, draw_metrics(history, schedule))
    note = (
        "Stages from left to right, as wide as they have steps. In each cell the task's steps in that stage; the "
        "darker, the larger its share of the stage."
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

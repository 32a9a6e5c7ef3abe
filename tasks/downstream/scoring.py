"""Scores of the answers to rows, by the metrics of a task."""

from __future__ import annotations

from collections.abc import Sequence
from reprlib import repr as shortened
from typing import Any

from ernie.data.labeled.row import Row
from ernie.errors import UserError
from tasks.downstream.base import Answer, FinetuneTask
from tasks.downstream.calling import calling, named
from tasks.downstream.hooks import MetricSettings


def score_answers(task: FinetuneTask, rows: Sequence[Row], answers: Sequence[Answer]) -> dict[str, float]:
    """Return the scores of the answers to these rows, the deciding metric first.

    Raises UserError for a row without a target, and for what a kind of the user's own should not return.
    """
    targets, predictions = [], []
    for row, answer in zip(rows, answers, strict=True):
        if not isinstance(answer, dict):
            raise UserError(
                f"{row.place}: {named(task, 'answer')} returns {shortened(answer)}; expected a dict, whose first "
                "value is the answer itself"
            )
        with calling(task, "target", row.place):
            targets.append(task.target(row))
        with calling(task, "prediction", row.place):
            predictions.append(task.prediction(answer))
    return {name: _score(task, name, targets, predictions) for name in task.scored_by}


def signatures(task: FinetuneTask, rows: Sequence[Row]) -> dict[str, str]:
    """Return, for metrics with settings that change their values, the signature that tells them apart."""
    return task.signatures(rows) if isinstance(task, MetricSettings) else {}


def _score(task: FinetuneTask, name: str, targets: Sequence[Any], predictions: Sequence[Any]) -> float:
    with calling(task, name):
        metric = task.metric(name) if isinstance(task, MetricSettings) else task.known_metrics[name]
        score = metric(targets, predictions)
    try:
        return float(score)
    except (TypeError, ValueError):
        raise UserError(f"{named(task, name)} returns {shortened(score)}; expected a number, the score") from None

"""Predictions for rows, by a fine-tuned model of any kind."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ernie.data.labeled.row import Row
from ernie.outcome import Outcome
from inference.face import Face, face
from inference.task_model import BATCH_TOKENS, TaskModel
from tasks.downstream.base import Answer


@face("predict")
class Predictor(Face):
    """Answers rows: `predict` raises the error of a faulty row, `outcomes` returns it in the row's place."""

    def __init__(self, model: TaskModel):
        super().__init__(model)

    def predict(
        self, rows: Iterable[Row | Mapping[str, Any] | str], batch_tokens: int = BATCH_TOKENS
    ) -> Iterator[Answer]:
        """Yield the predictions for rows: see `TaskModel.predict`."""
        yield from self.model.predict(rows, batch_tokens)

    def outcomes(
        self, rows: Iterable[Row | Mapping[str, Any] | str], batch_tokens: int = BATCH_TOKENS
    ) -> Iterator[Outcome[Answer]]:
        """Yield the outcome of each row, with notes: see `TaskModel.outcomes`."""
        yield from self.model.outcomes(rows, batch_tokens)

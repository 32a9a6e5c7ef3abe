"""A custom kind of fine-tuning task, outside the library: grades, where a near miss is better than a far one.

Put this file anywhere on the Python path and name it in the task's YAML:

    plugins: [grades]
    task: {kind: grade, text: review, label: stars}

`ernie tasks grade --plugin grades` shows it as YAML sees it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ernie.data.batch import Packed
from ernie.data.labeled.row import Row
from ernie.errors import UserError
from tasks.downstream.base import Answer, Example, TextTask, finetune_task
from tasks.downstream.metrics import accuracy

if TYPE_CHECKING:
    from paddle import Tensor

    from ernie.model.losses import Loss


def kappa(labels: Sequence[int], predictions: Sequence[int]) -> float:
    """Return Cohen's kappa with quadratic weights."""
    from sklearn.metrics import cohen_kappa_score

    return float(np.nan_to_num(cohen_kappa_score(labels, predictions, weights="quadratic")))


@finetune_task("grade")
@dataclass(frozen=True, kw_only=True)
class Grade(TextTask):
    """A whole number from `lowest` to `highest` for each row, trained with squared error and rounded."""

    lowest: int = 1
    highest: int = 5

    known_metrics: ClassVar = {"kappa": kappa, "accuracy": accuracy}
    default_metrics: ClassVar = 2

    def target(self, row: Row) -> int:
        grade = row.text(self.label)
        if not grade.isdecimal() or not self.lowest <= int(grade) <= self.highest:
            raise UserError(f"grade '{grade}' is not a whole number from {self.lowest} to {self.highest}")
        return int(grade)

    sample_target = target

    def prediction(self, answer: Answer) -> int:
        return answer["grade"]

    def outputs(self) -> int:
        return 1

    def loss(self, logits: Tensor, batch: Packed) -> Loss:
        from ernie.model.losses import squared_error

        return squared_error(logits, batch.labels["label"].values)

    def answer(self, example: Example, logits: list[np.ndarray]) -> Answer:
        return {"grade": min(max(round(float(logits[0][0])), self.lowest), self.highest)}

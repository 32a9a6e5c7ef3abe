"""Regression: a number for a text or a pair of texts, such as how alike two sentences are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ernie.data.batch import Packed
from ernie.data.labelled.row import Row
from ernie.errors import UserError
from tasks.downstream.base import Answer, Example, TextTask, finetune_task, rounded
from tasks.downstream.measures import mean_squared_error, pearson, spearman

if TYPE_CHECKING:
    from paddle import Tensor

    from ernie.model.losses import Loss


@finetune_task("regress")
@dataclass(frozen=True, kw_only=True)
class Regress(TextTask):
    """A number for each row, learnt by squared error.  With `limits` answers are kept between two numbers."""

    limits: tuple[float, float] | None = None

    measures: ClassVar = {"pearson": pearson, "spearman": spearman, "mean_squared_error": mean_squared_error}
    usual: ClassVar = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.limits is not None and not self.limits[0] < self.limits[1]:
            raise UserError(f"limits: expected a smaller and a larger number, found {list(self.limits)}")

    def truth(self, row: Row) -> float:
        text = row.text(self.label)
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise UserError(f"column '{self.label}': expected a number, found '{text}'")
        return number

    target = truth

    def answered(self, answer: Answer) -> float:
        return answer["value"]

    def outputs(self) -> int:
        return 1

    def loss(self, logits: Tensor, batch: Packed) -> Loss:
        from ernie.model.losses import squared_error

        return squared_error(logits, batch.labels["label"].values)

    def answer(self, example: Example, logits: list[np.ndarray]) -> Answer:
        low, high = self.limits or (-math.inf, math.inf)
        return {"value": rounded(min(max(float(logits[0][0]), low), high))}

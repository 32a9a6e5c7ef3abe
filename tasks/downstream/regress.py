"""Regression: a number for a text or a pair of texts, such as how alike two sentences are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ernie.data.batch import Packed
from ernie.data.labeled.row import Row
from ernie.errors import UserError
from ernie.formatting import plural
from tasks.downstream.base import Answer, Example, LogitsTask, TextTask, finetune_task
from tasks.downstream.hooks import ExportNotes, SplitRemarks
from tasks.downstream.labels import label_in, number_in
from tasks.downstream.loss_settings import WeightedRows
from tasks.downstream.metrics import mean_squared_error, pearson, spearman

if TYPE_CHECKING:
    from paddle import Tensor

    from ernie.model.losses import Loss


@finetune_task("regress")
@dataclass(frozen=True, kw_only=True)
class Regress(WeightedRows, TextTask, SplitRemarks, ExportNotes):
    """A number for each row, trained with squared error.  With `limits`, answers are clipped between two numbers.

    The model predicts how many standard deviations a number is from the mean; `scale` is that mean and deviation, by
    default those of the training rows.
    """

    limits: tuple[float, float] | None = None
    scale: tuple[float, float] | None = None  # None also in models older than this key: unscaled

    one_answer: ClassVar[bool] = False
    known_metrics: ClassVar = {"pearson": pearson, "spearman": spearman, "mean_squared_error": mean_squared_error}
    default_metrics: ClassVar = 2
    head_fields: ClassVar = ("scale",)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.limits is not None and not self.limits[0] < self.limits[1]:
            raise UserError(f"limits: expected a smaller and a larger number, found {list(self.limits)}")
        if self.scale is not None and not (math.isfinite(self.scale[0]) and 0 < self.scale[1] < math.inf):
            raise UserError(f"scale: expected a mean and a deviation above 0, found {list(self.scale)}")

    def adapted_to(self, rows: Sequence[Row]) -> Regress:
        return self._scaled_by(rows).weighed_by(rows)

    def _scaled_by(self, rows: Sequence[Row]) -> Regress:
        if self.scale is not None:
            return self
        numbers = []
        for row in rows:
            with suppress(UserError):  # reported when the row's example is made
                numbers.append(self.target(row))
        if not numbers:
            return self
        ordered = np.sort(numbers)  # makes the sums independent of the order of rows
        return replace(self, scale=(float(ordered.mean()), float(ordered.std()) or 1.0))

    def target(self, row: Row) -> float:
        label_in(row, self.label)  # raises for an empty cell
        return number_in(row, self.label)

    def remarks_on(self, rows: Sequence[Row]) -> list[str]:
        found = [self.target(row) for row in rows]
        remarks = []
        if len(set(found)) == 1:
            remarks.append(f"every row has the number {found[0]:g}; no correlation is defined")
        below = [number for number in found if number < 0]
        if len({*below}) == 1 and below[0].is_integer() and max(found) > 0:
            remarks.append(
                f"{below[0]:g} ({len(below):,} of {len(found):,}) is the only number below 0; if it marks rows without "
                "a number, data.skip can leave them out"
            )
        low, high = self.limits or (-math.inf, math.inf)
        outside = sum(not low <= number <= high for number in found)
        if outside:
            remarks.append(
                f"{outside:,} of {plural(len(found), 'label')} outside of task.limits, {low:g} to {high:g}, to which "
                "answers are clipped"
            )
        return remarks

    def sample_target(self, row: Row) -> float:
        mean, deviation = self.scale or (0.0, 1.0)
        return (self.target(row) - mean) / deviation

    @property
    def no_target(self) -> float:
        return 0.0

    def prediction(self, answer: Answer) -> float:
        return answer["value"]

    def outputs(self) -> int:
        return 1

    @property
    def reading(self) -> str:
        unit = "in standard deviations from the mean of the training targets" if self.scale else "the values"
        clipped = "; predictions are clipped between {:g} and {:g}".format(*self.limits) if self.limits else ""
        return f"Logits are {unit}{clipped}."

    @property
    def reading_code(self) -> str:
        mean, deviation = self.scale or (0.0, 1.0)
        values = f"{mean} + {deviation} * logits"
        return f"values = ({values}).clip{self.limits}" if self.limits else f"values = {values}"

    def loss(self, logits: Tensor, batch: Packed) -> Loss:
        from ernie.model.losses import squared_error

        return squared_error(logits, batch.labels["label"].values, batch.weights)

    def divergence(self, logits: Tensor) -> Tensor:
        one, other = logits.chunk(2)
        return ((one - other) ** 2).sum()  # twice that between Gaussians of deviation 1, as the loss is

    def distillation(self, logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        return ((logits - teacher) ** 2).sum()

    def from_teacher(self, teacher: LogitsTask, logits: np.ndarray) -> np.ndarray:
        assert isinstance(teacher, Regress)
        (mean, deviation), (their_mean, their_deviation) = (task.scale or (0.0, 1.0) for task in (self, teacher))
        return (their_mean - mean + their_deviation * logits) / deviation

    def answer(self, example: Example, logits: list[np.ndarray]) -> Answer:
        low, high = self.limits or (-math.inf, math.inf)
        mean, deviation = self.scale or (0.0, 1.0)
        return {"value": min(max(mean + deviation * float(logits[0][0]), low), high)}

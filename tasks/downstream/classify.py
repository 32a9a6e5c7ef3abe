"""Classification: one label for a text or a pair of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ernie.data.batch import Packed
from ernie.data.labeled.row import Row
from ernie.errors import UserError
from tasks.downstream.base import Answer, Example, LabelScores, TextTask, by_label, finetune_task, rounded, softmax
from tasks.downstream.hooks import ExportNotes, ScoresByLabel, SplitRemarks
from tasks.downstream.labels import check_labels, collected, found_in, index_of, label_in
from tasks.downstream.loss_settings import WeightedClasses
from tasks.downstream.metrics import accuracy, f1, label_scores, macro_f1, matthews

if TYPE_CHECKING:
    from paddle import Tensor

    from ernie.model.losses import Loss


@finetune_task("classify")
@dataclass(frozen=True, kw_only=True)
class Classify(WeightedClasses, TextTask, SplitRemarks, ScoresByLabel, ExportNotes):
    """One of `labels` for each row; by default those of the training rows.

    The metric f1 is that of the second of two labels, macro_f1 the mean over the labels among the targets or answers.
    With `all_labels`, answers give the probability of every label, and with `raw_scores` its logit.
    """

    labels: tuple[str, ...] = ()
    all_labels: bool = False
    raw_scores: bool = False

    known_metrics: ClassVar = {"accuracy": accuracy, "f1": f1, "macro_f1": macro_f1, "matthews": matthews}
    head_fields: ClassVar = ("labels",)
    decoding_fields: ClassVar = ("all_labels", "raw_scores")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_labels(self.labels)
        if "f1" in self.metrics and len(self.labels) > 2:
            raise UserError(f"metrics: f1 is that of one of two labels; for {len(self.labels)} there is macro_f1")

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.labels

    def occurrences(self, row: Row) -> np.ndarray:
        return np.eye(len(self.labels))[[self.target(row)]]

    def adapted_to(self, rows: Sequence[Row]) -> Classify:
        return self._labeled_as(rows).weighed_by(rows)

    def _labeled_as(self, rows: Sequence[Row]) -> Classify:
        if self.labels:
            return self
        return replace(self, labels=collected(found_in(rows, lambda row: [label_in(row, self.label)])))

    def target(self, row: Row) -> int:
        return index_of(label_in(row, self.label), self.labels)

    sample_target = target

    def prediction(self, answer: Answer) -> int:
        return self.labels.index(answer["label"])

    def outputs(self) -> int:
        return len(self.labels)

    def loss(self, logits: Tensor, batch: Packed) -> Loss:
        return self.class_loss(logits, batch.labels["label"].values, batch.weights)

    @property
    def reading(self) -> str:
        return "A row's label is that of its largest logit; softmax over the labels gives their probabilities."

    def answer(self, example: Example, logits: list[np.ndarray]) -> Answer:
        probabilities = softmax(logits[0])
        best = int(probabilities.argmax())
        answer = {"label": self.labels[best], "probability": rounded(probabilities[best])}
        return answer | by_label(
            self.labels,
            all_labels=probabilities if self.all_labels else None,
            raw_scores=logits[0] if self.raw_scores else None,
        )

    def scores_by_label(self, rows: Sequence[Row], answers: Sequence[Answer]) -> dict[str, LabelScores]:
        return label_scores([self.target(row) for row in rows], [self.prediction(a) for a in answers], self.labels)

    def remarks_on(self, rows: Sequence[Row]) -> list[str]:
        found = {self.target(row) for row in rows}
        return [f"every row has the label '{self.labels[found.pop()]}'"] if len(found) == 1 < len(rows) else []

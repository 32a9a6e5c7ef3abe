"""Multi-label classification: any number of labels for a text or a pair of texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ernie.data.batch import Packed
from ernie.data.labeled.row import Row
from ernie.errors import UserError
from tasks.downstream.base import Answer, Example, LabelScores, TextTask, by_label, finetune_task, rounded
from tasks.downstream.labels import check_labels, collected, found_in, index_of
from tasks.downstream.measures import exact_sets, label_scores, set_macro_f1, set_micro_f1

if TYPE_CHECKING:
    from paddle import Tensor

    from ernie.model.losses import Loss


@finetune_task("multilabel")
@dataclass(frozen=True, kw_only=True)
class MultiLabel(TextTask):
    """Any number of `labels` for each row: those whose probability is at least `threshold`.

    The cell of a row is a list, or text with `separator` between the labels; empty for none.  With `all_labels`,
    answers give the probability of every label.
    """

    labels: tuple[str, ...] = ()
    separator: str = ","
    threshold: float = 0.5
    all_labels: bool = False

    measures: ClassVar = {"micro_f1": set_micro_f1, "macro_f1": set_macro_f1, "exact": exact_sets}
    usual: ClassVar = 3
    head_fields: ClassVar = ("labels",)
    decoding_fields: ClassVar = ("threshold",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_labels(self.labels)
        if not self.separator:
            raise UserError("separator: expected at least one character")
        if not 0 < self.threshold < 1:
            raise UserError(f"threshold: expected a probability between 0 and 1, found {self.threshold}")

    def adapted_to(self, rows: Sequence[Row]) -> MultiLabel:
        return self if self.labels else replace(self, labels=collected(found_in(rows, self._labels_of)))

    def _labels_of(self, row: Row) -> list[str]:
        cell = row.cell(self.label)
        if isinstance(cell, list):
            parts = [Row({self.label: part}).text(self.label) for part in cell]
        else:
            parts = row.text(self.label).split(self.separator)
        return [part.strip() for part in parts if part.strip()]

    def truth(self, row: Row) -> np.ndarray:
        return self._hot(self._labels_of(row))

    def target(self, row: Row) -> np.ndarray:
        return self.truth(row).astype(np.float32)[None]

    def prediction(self, answer: Answer) -> np.ndarray:
        return self._hot(answer["labels"])

    def _hot(self, labels: Sequence[str]) -> np.ndarray:
        hot = np.zeros(len(self.labels), np.int64)
        hot[[index_of(label, self.labels) for label in labels]] = 1
        return hot

    def outputs(self) -> int:
        return len(self.labels)

    @property
    def reading(self) -> str:
        return (
            "The sigmoid of a logit is the probability of its label; a row's labels are those with at least "
            f"{self.threshold:g}."
        )

    def loss(self, logits: Tensor, batch: Packed) -> Loss:
        from ernie.model.losses import binary_cross_entropy

        return binary_cross_entropy(logits, batch.labels["label"].values)

    def answer(self, example: Example, logits: list[np.ndarray]) -> Answer:
        probabilities = np.exp(-np.logaddexp(0, -logits[0].astype(np.float64)))
        chosen = np.flatnonzero(probabilities >= self.threshold)
        answer: Answer = {
            "labels": [self.labels[i] for i in chosen],
            "probabilities": [rounded(probabilities[i]) for i in chosen],
        }
        return answer | (by_label(self.labels, probabilities) if self.all_labels else {})

    def with_all_labels(self) -> MultiLabel:
        return replace(self, all_labels=True)

    def scores_by_label(self, rows: Sequence[Row], answers: Sequence[Answer]) -> dict[str, LabelScores]:
        targets, predictions = [self.truth(row) for row in rows], [self.prediction(answer) for answer in answers]
        return label_scores(np.stack(targets), np.stack(predictions), self.labels)

"""Classification: one label for a text or a pair of texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from ernie.data.batch import Packed
from ernie.data.labeled.row import Row
from ernie.errors import UserError
from ernie.formatting import plural
from tasks.downstream.base import (
    Answer,
    Example,
    LabelScores,
    TextTask,
    answer_columns,
    by_label,
    finetune_task,
    rounded,
    softmax,
)
from tasks.downstream.calibration import Calibrated, check_thresholds, thresholds_of
from tasks.downstream.hooks import ExportNotes, ScoresByLabel, SplitRemarks
from tasks.downstream.labels import check_label_columns, check_labels, collected, found_in, index_of, label_in
from tasks.downstream.loss_settings import SoftLabels, WeightedClasses
from tasks.downstream.metrics import accuracy, f1, label_scores, macro_f1, matthews
from tasks.downstream.soft_labels import as_distribution, probabilities_in

if TYPE_CHECKING:
    from paddle import Tensor

    from ernie.model.losses import Loss


@finetune_task("classify")
@dataclass(frozen=True, kw_only=True)
class Classify(WeightedClasses, SoftLabels, Calibrated, TextTask, SplitRemarks, ScoresByLabel, ExportNotes):
    """One of `labels` for each row; by default those of the training rows.

    The cell of a row is a label, or the probability of each, {label: probability}.  With several columns as `label`,
    each has the probability of one label, by default that of its name.  Metrics take the most probable label: of
    several, the first in `labels`.

    The metric f1 is that of the second of two labels, macro_f1 the mean over the labels among the targets or answers.
    With `all_labels`, answers give the probability of every label, and with `raw_scores` its logit.

    Of two labels the second one is answered if its probability is at least `threshold`, by default if it is the larger
    one.  Of more labels the one is answered whose probability is the largest multiple of its own `threshold`, {label:
    threshold}; the others have 0.5.
    """

    label: str | tuple[str, ...] = "label"  # type: ignore[assignment]  # other kinds have one column
    labels: tuple[str, ...] = ()
    threshold: float | dict[str, float] | None = field(default=None, hash=False)
    all_labels: bool = False
    raw_scores: bool = False

    known_metrics: ClassVar = {"accuracy": accuracy, "f1": f1, "macro_f1": macro_f1, "matthews": matthews}
    head_fields: ClassVar = ("labels",)
    decoding_fields: ClassVar = (*TextTask.decoding_fields, "temperature", "threshold", "all_labels", "raw_scores")
    threshold_metrics: ClassVar = ("accuracy", "f1", "macro_f1", "matthews")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_labels(self.labels)
        check_label_columns(self.label, self.labels, "a probability")
        check_thresholds(self.threshold, self.labels)
        if isinstance(self.threshold, float) and self.labels and len(self.labels) != 2:
            raise UserError(
                f"threshold: one number is for two labels, and there are {len(self.labels)}; give each its own, as in "
                f"{{{self.labels[0]}: 0.4}}"
            )
        if isinstance(self.threshold, dict) and len(self.labels) == 2:
            raise UserError(f"threshold: of two labels, give one number, that of '{self.labels[1]}'")
        if "f1" in self.metrics and len(self.labels) > 2:
            raise UserError(f"metrics: f1 is that of one of two labels; for {len(self.labels)} there is macro_f1")

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.labels

    def occurrences(self, row: Row) -> np.ndarray:
        soft = self._distribution(row) if self.soft_labels else None
        return np.eye(len(self.labels))[[self.target(row)]] if soft is None else soft[None]

    def adapted_to(self, rows: Sequence[Row]) -> Classify:
        return self._labeled_as(rows).weighed_by(rows)

    def _labeled_as(self, rows: Sequence[Row]) -> Classify:
        task = self
        if not task.labels:
            named = self.label if isinstance(self.label, tuple) else collected(found_in(rows, self._named_in))
            task = replace(task, labels=named)
        return task.softened_by(rows)

    def has_soft_label(self, row: Row) -> bool:
        return probabilities_in(row, answer_columns(self), self.labels) is not None

    def _named_in(self, row: Row) -> Iterable[str]:
        """Return the labels that a row names."""
        found = probabilities_in(row, answer_columns(self), self.labels)
        return [label_in(row, answer_columns(self)[0])] if found is None else found

    def _distribution(self, row: Row) -> np.ndarray | None:
        """Return the probability of each of `labels` (C,); None if the row has one label."""
        found = probabilities_in(row, answer_columns(self), self.labels)
        return None if found is None else as_distribution(found, self.labels)

    def target(self, row: Row) -> int:
        soft = self._distribution(row)
        return index_of(label_in(row, answer_columns(self)[0]), self.labels) if soft is None else int(soft.argmax())

    def sample_target(self, row: Row) -> int | np.ndarray:
        return self.occurrences(row).astype(np.float32) if self.soft_labels else self.target(row)

    @property
    def no_target(self) -> int | np.ndarray:
        return self.any_target(self.outputs())

    def prediction(self, answer: Answer) -> int:
        return self.labels.index(answer["label"])

    def outputs(self) -> int:
        return len(self.labels)

    def loss(self, logits: Tensor, batch: Packed) -> Loss:
        return self.class_loss(logits, batch.labels["label"].values, batch.weights)

    @property
    def reading(self) -> str:
        chosen = "that of its largest logit"
        if isinstance(self.threshold, float):
            chosen = f"'{self.labels[1]}' if its probability is at least {self.threshold:g}, else '{self.labels[0]}'"
        elif self.threshold is not None:
            chosen = f"that whose probability is the largest multiple of its own of {self.threshold} (others: 0.5)"
        return f"A row's label is {chosen}; softmax over the labels gives their probabilities.{self.tempered}"

    def decisions(self, row: Row, example: Example, logits: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        return logits[0][None], np.array([self.target(row)])

    def answer(self, example: Example, logits: list[np.ndarray]) -> Answer:
        probabilities = softmax(logits[0])
        best = self._decided(probabilities)
        answer = {"label": self.labels[best], "probability": rounded(probabilities[best])}
        return answer | by_label(
            self.labels,
            all_labels=probabilities if self.all_labels else None,
            raw_scores=logits[0] if self.raw_scores else None,
        )

    def _decided(self, probabilities_C: np.ndarray) -> int:
        """Return the number of the label that is answered."""
        if isinstance(self.threshold, float):
            return int(probabilities_C[1] >= self.threshold)
        if self.threshold is not None:
            probabilities_C = probabilities_C / thresholds_of(self.threshold, self.labels)
        return int(probabilities_C.argmax())

    def loss_notes(self, rows: Sequence[Row]) -> Iterator[str]:
        if self.soft_labels:
            divided = sum(float(self.occurrences(row).max()) < 1 for row in rows)
            yield f"soft labels: {divided:,} of {plural(len(rows), 'row')} are divided among several labels"
        yield from super().loss_notes(rows)

    def scores_by_label(self, rows: Sequence[Row], answers: Sequence[Answer]) -> dict[str, LabelScores]:
        return label_scores([self.target(row) for row in rows], [self.prediction(a) for a in answers], self.labels)

    def remarks_on(self, rows: Sequence[Row]) -> list[str]:
        found = {self.target(row) for row in rows}
        return [f"every row has the label '{self.labels[found.pop()]}'"] if len(found) == 1 < len(rows) else []

"""Ranking: which of several texts answers a query best."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ernie.data.batch import Packed
from ernie.data.labeled.row import Row
from ernie.errors import UserError
from tasks.downstream.base import Answer, Example, TextTask, finetune_task, softmax
from tasks.downstream.calibration import Calibrated, check_thresholds
from tasks.downstream.hooks import ExportNotes, GroupedRows, SplitRemarks
from tasks.downstream.labels import label_in
from tasks.downstream.loss_settings import SoftLabels, WeightedClasses
from tasks.downstream.metrics import mean_average_precision, mean_reciprocal_rank, ranked_accuracy, ranked_f1
from tasks.downstream.multi_hot import hot_values
from tasks.downstream.soft_labels import PROBABLE, probability

if TYPE_CHECKING:
    from paddle import Tensor

    from ernie.model.losses import Loss


@finetune_task("rank")
@dataclass(frozen=True, kw_only=True)
class Rank(WeightedClasses, SoftLabels, Calibrated, TextTask, GroupedRows, SplitRemarks, ExportNotes):
    """The relevance of each row's text to its query, from 0 to 1; pointwise.

    `text` names the column of the query, `text_pair` that of the text, `label` one with 1 for a relevant text and 0 for
    any other.  These are also the labels of `class_weights`.  Rows with the same `group` (by default, the same query)
    are ranked against each other.  Groups without a relevant text are left out of MRR and MAP.  With `raw_scores`,
    answers give the logit of the relevance, too.

    With `soft_labels` the label is the probability that a text is relevant, from 0 to 1, as another model scores it.
    Metrics take those of at least 0.5 as relevant.

    The metrics f1 and accuracy take a score of at least `threshold` as relevant, by default 0.5; if it is given,
    answers say so, too.
    """

    text: str = "query"
    text_pair: str = "text"
    group: str = ""
    soft_labels: bool = False
    threshold: float | None = None
    raw_scores: bool = False

    column_fields: ClassVar = ("text", "text_pair", "group", "label")
    known_metrics: ClassVar = {
        "mrr": mean_reciprocal_rank,
        "map": mean_average_precision,
        "f1": ranked_f1,
        "accuracy": ranked_accuracy,
    }
    default_metrics: ClassVar = 3
    decoding_fields: ClassVar = (*TextTask.decoding_fields, "temperature", "threshold", "raw_scores")
    threshold_metrics: ClassVar = ("f1", "accuracy")
    judges_positive: ClassVar = True
    judged_in_words: ClassVar = "that a text is relevant"
    grouped_by: ClassVar = "query"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.text_pair:
            raise UserError("text_pair: expected the column of the text that is ranked")
        check_thresholds(self.threshold)

    def target(self, row: Row) -> tuple[str, int]:
        return self.group_of(row), int(self._relevance(row) >= PROBABLE)

    def group_of(self, row: Row) -> str:
        return row.text(self.group or self.text)

    def remarks_on(self, rows: Sequence[Row]) -> list[str]:
        found = {self.target(row)[1] for row in rows}
        if found == {0}:
            return ["no row is relevant (label 1); MRR and MAP are 0 whatever is answered"]
        return ["every row is relevant (label 1)"] if found == {1} else []

    def sample_target(self, row: Row) -> int | np.ndarray:
        return self.occurrences(row).astype(np.float32) if self.soft_labels else int(self._relevance(row))

    def _relevance(self, row: Row) -> float:
        """Return the label of a row: 0 or 1 or, with `soft_labels`, a probability."""
        given = label_in(row, self.label)
        if self.soft_labels:
            return probability(given, f"column '{self.label}'")
        values = hot_values([given])
        if values is None:
            raise UserError(f"label '{given}' is not 0 or 1")
        return values[0]

    @property
    def class_names(self) -> tuple[str, ...]:
        return "0", "1"

    def occurrences(self, row: Row) -> np.ndarray:
        relevance = self._relevance(row)
        return np.array([[1 - relevance, relevance]])

    def has_soft_label(self, row: Row) -> bool:
        return False  # only the key tells probabilities from labels

    @property
    def no_target(self) -> int | np.ndarray:
        return self.any_target(self.outputs())

    def prediction(self, answer: Answer) -> float:
        """Return the score of an answer, or one in the same order that is at least 0.5 where a threshold decides so."""
        return (answer["score"] + answer["relevant"]) / 2 if "relevant" in answer else answer["score"]

    def outputs(self) -> int:
        return 2

    def loss(self, logits: Tensor, batch: Packed) -> Loss:
        return self.class_loss(logits, batch.labels["label"].values, batch.weights)

    def comparable(self, logits_NC: Any) -> Any:
        """Return logits whose difference is the score: the largest is that of the most relevant window (MaxP)."""
        return logits_NC - logits_NC[:, :1]

    @property
    def reading(self) -> str:
        return (
            "A text's score is the second column of the softmax over the last axis: how likely it is relevant."
            + self.tempered
        )

    def decisions(self, row: Row, example: Example, logits: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        return logits[0][None], np.array([self.target(row)[1]])

    def loss_notes(self, rows: Sequence[Row]) -> Iterator[str]:
        if self.soft_labels:
            yield "soft labels: probabilities of relevance"
        yield from super().loss_notes(rows)

    def answer(self, example: Example, logits: list[np.ndarray]) -> Answer:
        # Not rounded: a confident model would give many ties.
        irrelevant, relevant = logits[0].astype(np.float64)
        answer: Answer = {"score": float(softmax(np.array([irrelevant, relevant]))[1])}
        if self.threshold is not None:
            answer["relevant"] = answer["score"] >= self.threshold
        return answer | ({"raw_score": float(relevant - irrelevant)} if self.raw_scores else {})

"""Multi-label classification: any number of labels for a text or a pair of texts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from reprlib import repr as shortened
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from ernie.data.batch import Packed
from ernie.data.labeled.literal import OPENING
from ernie.data.labeled.row import Row, as_list, as_value, is_empty, spelled
from ernie.errors import UserError, about
from ernie.formatting import plural
from tasks.downstream.base import (
    Answer,
    Example,
    LabelScores,
    TextTask,
    answer_columns,
    by_label,
    finetune_task,
    log_mean_softmax,
    rounded,
)
from tasks.downstream.calibration import Calibrated, check_thresholds, thresholds_of
from tasks.downstream.hooks import ExportNotes, ScoresByLabel
from tasks.downstream.labels import check_label_columns, check_labels, collected, found_in, index_of
from tasks.downstream.loss_settings import SoftLabels, WeightedClasses
from tasks.downstream.metrics import exact_sets, label_scores, set_macro_f1, set_micro_f1
from tasks.downstream.multi_hot import (
    are_multi_hot,
    check_named_once,
    check_not_two_names,
    check_separator,
    hot_values,
)
from tasks.downstream.soft_labels import PROBABLE, as_array, probabilities_in

if TYPE_CHECKING:
    from paddle import Tensor

    from ernie.model.losses import Loss

_QUOTED_ITEM = re.compile(r"""[\[({]\s*[uUbB]?['"]""")


@finetune_task("multilabel")
@dataclass(frozen=True, kw_only=True)
class MultiLabel(WeightedClasses, SoftLabels, Calibrated, TextTask, ScoresByLabel, ExportNotes):
    """Any number of `labels` for each row: those whose probability is at least `threshold`.

    The cell of a row is a list of labels, or text with `separator` between them; empty for none.  With `multi_hot` it
    has one 0 or 1 (or true, false) for each label instead; unless given, the training rows tell.  Such labels are
    numbered from 0 unless `labels` names them.  With several columns as `label`, each has the 0 or 1 of one label, by
    default that of its name.  With `all_labels`, answers give the probability of every label, and with `raw_scores` its
    logit.

    The cell may also be the probability of each label, {label: probability}, where 0 is left out.  Metrics take the
    labels of at least 0.5.  With `soft_labels: true` several columns have probabilities, too.

    `threshold` is one for all labels, or {label: its own}, where the others have 0.5.

    Each label is learned as two classes, with it and without.  The weight of a label in `class_weights` is that of the
    rows with it, beside 1 for those without.  With `balanced` both count alike: the weight is (n - count) / count.
    """

    label: str | tuple[str, ...] = "label"  # type: ignore[assignment]  # other kinds have one column
    multi_hot: bool | None = None
    labels: tuple[str, ...] = ()
    separator: str = ","
    threshold: float | dict[str, float] = field(default=0.5, hash=False)
    all_labels: bool = False
    raw_scores: bool = False

    known_metrics: ClassVar = {"micro_f1": set_micro_f1, "macro_f1": set_macro_f1, "exact": exact_sets}
    default_metrics: ClassVar = 3
    threshold_metrics: ClassVar = ("micro_f1", "macro_f1", "exact")
    judges_positive: ClassVar = True
    judged_in_words: ClassVar = "that a label belongs to a row"
    head_fields: ClassVar = ("labels", "multi_hot")
    decoding_fields: ClassVar = (*TextTask.decoding_fields, "temperature", "threshold", "all_labels", "raw_scores")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_labels(self.labels, fewest=1)
        if not self.separator:
            raise UserError("separator: expected at least one character")
        check_thresholds(self.threshold, self.labels)
        check_label_columns(self.label, self.labels, "a 0 or 1")
        if not isinstance(self.label, str) and self.multi_hot is False:
            raise UserError("multi_hot: several columns have one 0 or 1 each; leave it out")

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.labels

    def occurrences(self, row: Row) -> np.ndarray:
        return (self._probabilities(row) if self.soft_labels else self.target(row).astype(np.float64))[None]

    def balanced(self, counts_C: np.ndarray, targets: float) -> np.ndarray:
        for name, count in zip(self.labels, counts_C, strict=True):
            if count == targets:
                raise UserError(f"class_weights: balanced has no weight for the label '{name}', which every row has")
        return (targets - counts_C) / counts_C

    def target_weights(self, row: Row) -> np.ndarray:
        found, weights = self.occurrences(row), self.loss_weights
        return self.weight_of(row) * (np.ones(1) if weights is None else (found * weights + 1 - found).mean(1))

    def adapted_to(self, rows: Sequence[Row]) -> MultiLabel:
        return self._labeled_as(rows).weighed_by(rows)

    def _labeled_as(self, rows: Sequence[Row]) -> MultiLabel:
        if len(answer_columns(self)) > 1:
            return replace(self, labels=self.labels or answer_columns(self), multi_hot=True)
        lists = self._lists(rows)
        task = self.softened_by(rows)
        if self.multi_hot is None and are_multi_hot(lists, self.labels):
            task = replace(task, multi_hot=True)
        if task.labels:
            return task
        if task.multi_hot:
            length = Counter(map(len, lists)).most_common(1)[0][0] if lists else 0
            return replace(task, labels=collected(map(str, range(length))))
        with about(f"column '{self.label}'"):
            named = [[spelled(item).strip() for item in items] for items in lists]
            check_not_two_names(named)
            check_separator(named)
        return replace(task, labels=collected(found_in(rows, task._named_in)))

    def has_soft_label(self, row: Row) -> bool:
        return probabilities_in(row, answer_columns(self), self.labels) is not None

    def _named_in(self, row: Row) -> Iterable[str]:
        """Return the labels that a row names."""
        found = self._given(row)
        return self._labels_of(row) if found is None else found

    def _given(self, row: Row) -> dict[str, float] | None:
        """Return the probabilities of a row's labels; None if the row has labels."""
        if not isinstance(self.label, str) and not self.soft_labels:
            return None
        return probabilities_in(row, answer_columns(self), self.labels)

    def _probabilities(self, row: Row) -> np.ndarray:
        """Return the probability of each label (C,), 0 or 1 if the row has labels."""
        found = self._given(row)
        return self._hot(self._labels_of(row)).astype(np.float64) if found is None else as_array(found, self.labels)

    def _lists(self, rows: Sequence[Row]) -> list[list[Any]]:
        """Return what stands in the rows that have labels; those that cannot be read are reported later."""
        lists = []
        for row in rows:
            with suppress(UserError):
                lists.append(self._items(row))
        return [items for items in lists if items]

    def _items(self, row: Row) -> list[Any]:
        """Return the items of a row's cell: labels, or one 0 or 1 for each."""
        (column,) = answer_columns(self)
        cell = row.cell(column)
        if is_empty(cell):
            return []
        items = as_list(cell)
        if items is None:
            text = row.text(column)
            if isinstance(as_value(text), dict):
                raise UserError(f"column '{column}': expected labels, found the object '{text:.60}'")
            _check_no_list(text, column)
            return [part.strip() for part in text.split(self.separator) if part.strip()]
        for item in items:
            if is_empty(item) and not isinstance(item, str):
                raise UserError(f"column '{column}': expected text, found nothing as an item of {shortened(items)}")
            Row({column: item}).text(column)  # raises for what is no label
        return [item for item in items if not is_empty(item)]

    def _labels_of(self, row: Row) -> list[str]:
        if self.multi_hot:
            values = self._hot_values(row)
            if len(values) not in (0, len(self.labels)):
                raise UserError(
                    f"column '{self.label}': expected one 0 or 1 for each of {len(self.labels)} labels, found "
                    f"{plural(len(values), 'value')}"
                )
            return [label for label, value in zip(self.labels, values, strict=False) if value]
        items = self._items(row)
        with about(f"column '{self.label}'"):
            check_named_once(items)
        return [spelled(item).strip() for item in items]

    def _hot_values(self, row: Row) -> list[int]:
        """Return one 0 or 1 for each label; none if the row's only cell is empty."""
        if len(answer_columns(self)) == 1:
            items = self._items(row)
            values = hot_values(items)
            if values is None:
                found = shortened(items)
                raise UserError(f"column '{self.label}': expected one 0 or 1 for each label, found {found}")
            return values
        columns = [(column, row.cell(column)) for column in answer_columns(self)]
        for column, cell in columns:
            if hot_values([cell]) is None:
                found = "nothing" if is_empty(cell) else shortened(cell)
                raise UserError(
                    f"column '{column}': expected 0 or 1, found {found}; data.values can make it one of them, and "
                    "data.skip leave such rows out; soft_labels: true learns probabilities"
                )
        return hot_values([cell for _, cell in columns]) or []

    def target(self, row: Row) -> np.ndarray:
        return (self._probabilities(row) >= PROBABLE).astype(np.int64)

    def sample_target(self, row: Row) -> np.ndarray:
        learned = self._probabilities(row) if self.soft_labels else self.target(row)
        return learned.astype(np.float32)[None]

    @property
    def no_target(self) -> np.ndarray:
        return np.zeros((1, len(self.labels)), np.float32)

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
        least = f"{self.threshold:g}" if isinstance(self.threshold, float) else f"their own of {self.threshold}"
        return (
            "The sigmoid of a logit is the probability of its label; a row's labels are those with at least "
            f"{least}.{self.tempered}"
        )

    def decisions(self, row: Row, example: Example, logits: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        return np.stack([np.zeros_like(logits[0]), logits[0]], -1), self.target(row)

    def loss(self, logits: Tensor, batch: Packed) -> Loss:
        """Return the loss of each label as that of two classes, with it and without, averaged over the labels."""
        from ernie.model.losses import Loss, binary_cross_entropy, focal_cross_entropy, masses, smoothed

        labels_NC, weights_C = batch.labels["label"].values, self.loss_weights
        options = (batch.weights, weights_C, self.label_smoothing or None, self.focal_gamma or None)
        if all(option is None for option in options):
            return binary_cross_entropy(logits, labels_NC)
        with_NC = masses(labels_NC, len(self.labels), batch.weights, weights_C)
        without_NC = masses(1 - labels_NC, len(self.labels), batch.weights)
        pairs = smoothed(np.stack([without_NC, with_NC], -1).reshape(-1, 2), self.label_smoothing)
        total = focal_cross_entropy(_pairs(logits), pairs, self.focal_gamma)
        return Loss(total / labels_NC.shape[1], len(labels_NC), logits, labels_NC)

    def divergence(self, logits: Tensor) -> Tensor:
        return super().divergence(_pairs(logits)) / logits.shape[1]

    def distillation(self, logits: Tensor, teacher: Tensor, temperature: float) -> Tensor:
        return super().distillation(_pairs(logits), _pairs(teacher), temperature) / logits.shape[1]

    def mean_logits(self, members: Sequence[Sequence[np.ndarray]]) -> list[np.ndarray]:
        means = []
        for parts in zip(*members, strict=True):
            pairs = [np.stack([np.zeros_like(scores), scores], -1) for scores in parts]  # without each label, with it
            means.append(np.diff(log_mean_softmax(pairs))[..., 0])
        return means

    def answer(self, example: Example, logits: list[np.ndarray]) -> Answer:
        probabilities = np.exp(-np.logaddexp(0, -logits[0].astype(np.float64)))
        chosen = np.flatnonzero(probabilities >= thresholds_of(self.threshold, self.labels))
        answer: Answer = {
            "labels": [self.labels[i] for i in chosen],
            "probabilities": [rounded(probabilities[i]) for i in chosen],
        }
        return answer | by_label(
            self.labels,
            all_labels=probabilities if self.all_labels else None,
            raw_scores=logits[0] if self.raw_scores else None,
        )

    def loss_notes(self, rows: Sequence[Row]) -> Iterator[str]:
        if self.soft_labels:
            between = sum(bool((self.occurrences(row) % 1).any()) for row in rows)
            yield f"soft labels: {between:,} of {plural(len(rows), 'row')} have a probability between 0 and 1"
        yield from super().loss_notes(rows)

    def scores_by_label(self, rows: Sequence[Row], answers: Sequence[Answer]) -> dict[str, LabelScores]:
        targets, predictions = [self.target(row) for row in rows], [self.prediction(answer) for answer in answers]
        return label_scores(np.stack(targets), np.stack(predictions), self.labels)


def _pairs(logits_NC: Tensor) -> Tensor:
    """Return the logits of each label as those of two classes, without it and with it: (N * C, 2)."""
    import paddle

    return paddle.stack([paddle.zeros_like(logits_NC), logits_NC], -1).reshape([-1, 2])


def _check_no_list(text: str, column: str) -> None:
    """Raise UserError for text that begins as a list and is none, perhaps as its quotes are doubled."""
    inner = text.strip().strip('"').strip()
    if OPENING.match(inner) and _is_broken_list(inner):
        quoted = "; data.quote: '\"' removes the quotes around it" if text.strip().startswith('"') else ""
        raise UserError(
            f"column '{column}': '{text:.60}' begins as a list and is none; the labels of a list have quotes, as in "
            f"['a', 'b']{quoted}"
        )


def _is_broken_list(text: str) -> bool:
    """Whether text after the OPENING of a list is no label: as ['a', 'b, [a, b], [1, 0, [0. ... 1.] or array(."""
    if text[0].isalpha() or _QUOTED_ITEM.match(text):
        return True
    inside, closing, rest = text[1:].partition("]")
    is_list = not rest and "[" not in inside and ("," in inside or "..." in inside)
    return text[0] == "[" and (not closing or is_list)

"""Settings of the loss that several kinds share: weights of rows and of classes, label smoothing, focal loss.

A kind inherits from the class with all that it takes.  The trainer divides the loss of a step by its number of targets,
which weights do not change.  So weights are divided by their mean over the training rows instead, once before training:
the result does not depend on how a step is split into micro-batches or among processes.

Legend: P targets, C classes.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

from ernie.config import check_least
from ernie.data.labeled.row import Row
from ernie.errors import UserError, nearest
from ernie.formatting import plural
from tasks.downstream.base import Example, FinetuneTask
from tasks.downstream.hooks import DerivesFromRows
from tasks.downstream.labels import number_in

if TYPE_CHECKING:
    from paddle import Tensor

    from ernie.model.losses import Loss

Rows = TypeVar("Rows", bound="WeightedRows")
Soft = TypeVar("Soft", bound="SoftLabels")
Classes = TypeVar("Classes", bound="WeightedClasses")
_SHOWN = 20  # weights of classes


@dataclass(frozen=True, kw_only=True)
class WeightedRows(FinetuneTask, DerivesFromRows):
    """A kind whose training rows may have weights.

    `row_weight` names a column of the training rows: how much a row counts in the loss, a number of at least 0.
    `mean_weight` is what all weights are divided by; the default is their mean over the training rows.
    """

    row_weight: str = ""
    mean_weight: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mean_weight is not None and not 0 < self.mean_weight < math.inf:
            raise UserError(f"mean_weight: expected a number above 0, found {self.mean_weight:g}")
        if self.mean_weight is not None and not self.weighs:
            raise UserError("mean_weight: has no effect without weights; leave it out")

    @property
    def weighs(self) -> bool:
        """Whether some targets count more than others."""
        return bool(self.row_weight)

    def adapted_to(self: Rows, rows: Sequence[Row]) -> Rows:
        return self.weighed_by(rows)

    def weighed_by(self: Rows, rows: Sequence[Row]) -> Rows:
        """Return the task with what its weights need to know of the training rows.

        Raises UserError if all of these weigh 0.
        """
        if not self.weighs or self.mean_weight is not None:
            return self
        weights = self._weights(rows)
        if not len(weights):
            return self  # no row can be read, which is reported later
        mean = math.fsum(weights) / len(weights)
        if not mean:
            key = "row_weight" if self.row_weight else "class_weights"
            raise UserError(f"{key}: every row of train has the weight 0, so that nothing is learned")
        return replace(self, mean_weight=mean)

    def _weights(self, rows: Sequence[Row]) -> np.ndarray:
        """Return the weights of the targets of all rows that can be read; the others are reported later."""
        found = []
        for row in rows:
            with suppress(UserError):
                found.append(self.target_weights(row))
        return np.concatenate(found) if found else np.empty(0)

    def target_weights(self, row: Row) -> np.ndarray:
        """Return the weights (P,) of a row's targets, before they are divided by the mean."""
        self.target(row)
        return np.array([self.weight_of(row)])

    def weight_of(self, row: Row) -> float:
        """Return the weight of a row, before it is divided.  Raises UserError for a cell that is no weight."""
        if not self.row_weight:
            return 1.0
        weight = number_in(row, self.row_weight)
        if weight < 0:
            raise UserError(f"column '{self.row_weight}': expected a weight of at least 0, found {weight:g}")
        return weight

    def weighted(self, row: Row, example: Example) -> Example:
        """Return the example of a training row with the row's weight."""
        if not self.weighs:
            return example
        weight = self.weight_of(row) / (self.mean_weight or 1.0)
        return replace(example, samples=tuple(replace(sample, weight=weight) for sample in example.samples))

    def loss_notes(self, rows: Sequence[Row]) -> Iterator[str]:
        """Yield what the settings of the loss make of the training rows, a line each, for settings in use."""
        if not self.weighs:
            return
        weights = self._weights(rows) / (self.mean_weight or 1.0)
        unit = self.labels_belong_to
        if self.row_weight:
            yield f"row weights: column '{self.row_weight}', divided by their mean"
        # Kish, 1965, "Survey Sampling": as many targets of equal weight vary their mean as little.
        effective = weights.sum() ** 2 / (weights @ weights)
        yield (
            f"weights of a {unit}: {weights.min():.4g} to {weights.max():.4g}, mean {weights.mean():.4g}; effective "
            f"number of {unit}s: {effective:,.1f} of {len(weights):,}"
        )


@dataclass(frozen=True, kw_only=True)
class ClassLoss(WeightedRows):
    """A kind whose loss is the cross entropy of classes.

    `label_smoothing` is the part of each target that is spread evenly over all classes (Szegedy et al., 2016, section
    7).

    `focal_gamma` is the exponent of focal loss, by which targets count less the better they are learned; 0 is the cross
    entropy (Lin et al., 2017, section 3).
    """

    label_smoothing: float = 0.0
    focal_gamma: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_smoothing(self.label_smoothing)
        check_least(self, focal_gamma=0)

    @property
    def loss_weights(self) -> np.ndarray | None:
        """The weights of the classes (C,) in the loss; None if all are 1."""
        return None

    def class_loss(
        self, logits_PC: Tensor, labels: np.ndarray, weights_P: np.ndarray | None, among_PC: np.ndarray | None = None
    ) -> Loss:
        """Return the loss of targets, summed, from their logits and weights.

        `labels` are integers (P,), or probabilities (P, C).  `among_PC` tells classes from padding.
        """
        from ernie.model.losses import Loss, cross_entropy, focal_cross_entropy, masses, smoothed

        options = (weights_P, self.loss_weights, self.label_smoothing or None, self.focal_gamma or None)
        if labels.ndim == 1 and all(option is None for option in options):
            return cross_entropy(logits_PC, labels)
        masses_PC = masses(labels, logits_PC.shape[1], weights_P, self.loss_weights)
        masses_PC = smoothed(masses_PC, self.label_smoothing, among_PC)
        return Loss(focal_cross_entropy(logits_PC, masses_PC, self.focal_gamma), len(labels), logits_PC, labels)

    def loss_notes(self, rows: Sequence[Row]) -> Iterator[str]:
        if self.label_smoothing:
            yield f"label smoothing: {self.label_smoothing:g}"
        if self.focal_gamma:
            yield f"focal loss: gamma {self.focal_gamma:g}"
        yield from super().loss_notes(rows)


@dataclass(frozen=True, kw_only=True)
class SoftLabels(ClassLoss):
    """A kind whose training rows may have a probability for each class in place of one class.

    With `soft_labels` training learns these, with `soft_labels: false` what metrics take: the most probable class, or
    those of at least 0.5.  Unless given, the training rows tell.
    """

    soft_labels: bool | None = None

    def softened_by(self: Soft, rows: Sequence[Row]) -> Soft:
        """Return the task with `soft_labels`, if they are not given and any of the rows has some."""
        if self.soft_labels is None and any(self._is_soft(row) for row in rows):
            return replace(self, soft_labels=True)
        return self

    def _is_soft(self, row: Row) -> bool:
        with suppress(UserError):  # rows that cannot be read are reported later
            return self.has_soft_label(row)
        return False

    @abstractmethod
    def has_soft_label(self, row: Row) -> bool:
        """Return whether a row has probabilities.  Raises UserError for a row that cannot be read."""

    def any_target(self, classes: int) -> int | np.ndarray:
        """Return a target of a row that has none: a class or, with `soft_labels`, a probability for each (1, C)."""
        return np.eye(classes, dtype=np.float32)[:1] if self.soft_labels else 0


@dataclass(frozen=True, kw_only=True)
class WeightedClasses(ClassLoss):
    """A kind whose classes may have weights: classes that occur in many rows.

    `class_weights` are the weights of targets by their class, {label: weight}; a label that is not named has the weight
    1. With `balanced` every class counts as much as any other: its weight is n / (classes * count), as scikit-learn has
    it (King and Zeng, 2001), from the training rows alone.
    """

    class_weights: Literal["balanced"] | dict[str, float] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.class_weights, dict):
            return
        for name, weight in self.class_weights.items():
            if not 0 <= weight < math.inf:
                raise UserError(f"class_weights.{name}: expected a weight of at least 0, found {weight:g}")
            if self.class_names and name not in self.class_names:
                raise UserError(f"class_weights.{name}: there is no such label.{nearest(name, self.class_names)}")

    @property
    @abstractmethod
    def class_names(self) -> tuple[str, ...]:
        """The labels of the classes, in the order of the logits; empty while they are unknown."""

    @abstractmethod
    def occurrences(self, row: Row) -> np.ndarray:
        """Return the classes of a row's targets (P, C): 1 for the class of a target, or its probability."""

    @property
    def weighs(self) -> bool:
        return super().weighs or self.class_weights is not None

    @property
    def loss_weights(self) -> np.ndarray | None:
        if not isinstance(self.class_weights, dict):
            return None
        return np.array([self.class_weights.get(name, 1.0) for name in self.class_names])

    def weighed_by(self: Classes, rows: Sequence[Row]) -> Classes:
        if self.class_weights is None:
            return super().weighed_by(rows)
        weights = self._balanced(rows) if self.class_weights == "balanced" else self.loss_weights
        assert weights is not None
        named = dict(zip(self.class_names, weights.tolist(), strict=True))
        return super(WeightedClasses, replace(self, class_weights=named)).weighed_by(rows)

    def _balanced(self, rows: Sequence[Row]) -> np.ndarray:
        """Return the balanced weights (C,).  Raises UserError for a class that no row has."""
        counts, targets = np.zeros(len(self.class_names)), 0.0
        for row in rows:
            with suppress(UserError):
                found, weight = self.occurrences(row), self.weight_of(row)
                counts += weight * found.sum(0)
                targets += weight * len(found)
        if not targets:
            return np.ones(len(counts))  # no row can be read, or all weigh 0, which is reported later
        absent = {name for name, count in zip(self.class_names, counts, strict=True) if not count}
        for name in self.class_names:
            if name in absent and not self.may_lack(name, absent):
                raise UserError(
                    f"class_weights: balanced has no weight for the label '{name}', which no row of train has; give "
                    "rows with it, or leave it out of the labels"
                )
        return self.balanced(counts, targets)

    def may_lack(self, name: str, absent: Container[str]) -> bool:
        """Whether a class may be one of those `absent` from train; its balanced weight is 1 then."""
        return False

    def balanced(self, counts_C: np.ndarray, targets: float) -> np.ndarray:
        """Return the balanced weights of classes with these counts, of so many targets."""
        return np.divide(targets, (counts_C > 0).sum() * counts_C, out=np.ones(len(counts_C)), where=counts_C > 0)

    def target_weights(self, row: Row) -> np.ndarray:
        weights, found = self.loss_weights, self.occurrences(row)
        return self.weight_of(row) * (found.sum(1) if weights is None else found @ weights)

    def loss_notes(self, rows: Sequence[Row]) -> Iterator[str]:
        if isinstance(self.class_weights, dict):
            shown = [f"{name} {weight:.4g}" for name, weight in [*self.class_weights.items()][:_SHOWN]]
            more = len(self.class_weights) - len(shown)
            yield f"class weights: {', '.join(shown)}" + (f" and {plural(more, 'more label')}" if more else "")
        yield from super().loss_notes(rows)


def check_smoothing(label_smoothing: float) -> None:
    """Raise UserError for a part of a target that is none."""
    if not 0 <= label_smoothing < 1:
        raise UserError(f"label_smoothing: expected a number from 0 to below 1, found {label_smoothing:g}")

"""Kinds whose probabilities can be calibrated, and whose decisions have a threshold, after training.

Legend: P decisions, C classes.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ernie.data.labeled.row import Row
from ernie.errors import UserError, nearest
from tasks.downstream.base import Answer, Example, LogitsTask, softmax

BINS = 15  # of the expected calibration error, as in the paper


@dataclass(frozen=True, kw_only=True)
class Calibrated(LogitsTask):
    """A kind that decides among classes, with probabilities.

    `temperature` divides the logits before they become probabilities: above 1 answers are less sure, below 1 surer
    (Guo et al., 2017, "On Calibration of Modern Neural Networks", arXiv 1706.04599, section 4.2).
    """

    temperature: float = 1.0

    threshold_metrics: ClassVar[tuple[str, ...]] = ()  # those that a threshold on the probability of a class changes
    judges_positive: ClassVar[bool] = False  # whether the probability of the second of two classes is judged
    judged_in_words: ClassVar[str] = "of the most probable answer"  # what has the probability that is judged

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.temperature < math.inf:
            raise UserError(f"temperature: expected a number above 0, found {self.temperature:g}")

    @abstractmethod
    def decisions(self, row: Row, example: Example, logits: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """Return the logits (P, C) of a labeled row's decisions, and the right class of each (P,)."""

    def _answer(self, example: Example, logits: list[np.ndarray]) -> Answer | UserError:
        if self.temperature != 1:
            logits = [part / self.temperature for part in logits]
        return super()._answer(example, logits)

    @property
    def tempered(self) -> str:
        """What to do with the logits first, in words that follow how they are read; empty for a temperature of 1."""
        return "" if self.temperature == 1 else f" Divide the logits by {self.temperature:g} first."


def check_thresholds(given: float | Mapping[str, float] | None, labels: Sequence[str] = ()) -> None:
    """Raise UserError for a threshold, or one of {label: threshold}, that is no probability or of no label."""
    for name, each in (given if isinstance(given, Mapping) else {"": given}).items():
        key = f"threshold.{name}" if name else "threshold"
        if each is not None and not 0 < each < 1:
            raise UserError(f"{key}: expected a probability between 0 and 1, found {each:g}")
        if name and labels and name not in labels:
            raise UserError(f"{key}: there is no such label.{nearest(name, labels)}")


def thresholds_of(given: float | Mapping[str, float], labels: Sequence[str]) -> float | np.ndarray:
    """Return the threshold of all labels, or of each (C,): 0.5 for those that {label: threshold} does not name."""
    return np.array([given.get(label, 0.5) for label in labels]) if isinstance(given, Mapping) else given


def decisions_of(
    task: Calibrated, rows: Sequence[Row], examples: Sequence[Example], logits: Sequence[list[np.ndarray]]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the logits (P, C) of the decisions of all rows, and the right classes (P,).

    Rows with fewer classes than others, such as choices, are filled with minus infinity.
    """
    found = [task.decisions(*each) for each in zip(rows, examples, logits, strict=True)]
    classes = max(own.shape[1] for own, _ in found)
    padded = [np.pad(own, ((0, 0), (0, classes - own.shape[1])), constant_values=-np.inf) for own, _ in found]
    return np.concatenate(padded).astype(np.float64), np.concatenate([targets for _, targets in found])


def judged(task: Calibrated, logits_PC: np.ndarray, targets_P: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what decisions are judged by: the probability of each (P,), and whether it came true (P,).

    It is the probability of the answer or, for kinds that ask whether something holds, that it does.
    """
    probabilities_PC = softmax(logits_PC)
    if task.judges_positive:
        return probabilities_PC[:, 1], targets_P == 1
    answers_P = logits_PC.argmax(-1)
    return probabilities_PC[np.arange(len(answers_P)), answers_P], answers_P == targets_P


def reliability(probabilities_P: np.ndarray, hits_P: np.ndarray) -> list[tuple[float, float, int]]:
    """Return for each of BINS intervals of the same width, if it is not empty, the mean probability, the share that
    came true, and the count (Guo et al., 2017, section 2)."""
    numbers = np.minimum((probabilities_P * BINS).astype(int), BINS - 1)
    bins = ((probabilities_P[numbers == n], hits_P[numbers == n]) for n in range(BINS))
    return [(float(own.mean()), float(hits.mean()), len(own)) for own, hits in bins if len(own)]


def calibration_error(probabilities_P: np.ndarray, hits_P: np.ndarray) -> float:
    """Return the expected calibration error: the mean difference of probability and share over the intervals."""
    bins = reliability(probabilities_P, hits_P)
    return sum(abs(mean - share) * count for mean, share, count in bins) / len(probabilities_P)


def log_loss(logits_PC: np.ndarray, targets_P: np.ndarray, temperature: float = 1.0) -> float:
    """Return the mean negative log-likelihood of the right classes."""
    scaled = logits_PC / temperature
    right = scaled[np.arange(len(targets_P)), targets_P]
    return float((np.logaddexp.reduce(scaled, -1) - right).mean())

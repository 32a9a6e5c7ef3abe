"""Soft labels: a probability for each label of a row, as a teacher or several annotators give.

Hinton et al., 2015, "Distilling the Knowledge in a Neural Network" (arXiv 1503.02531).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from reprlib import repr as shortened
from typing import Any

import numpy as np

from ernie.data.labeled.row import Row, as_value, is_empty, spelled
from ernie.errors import UserError
from tasks.downstream.labels import NO_LABEL, index_of

PROBABLE = 0.5  # the least probability of a label that a row counts as having
_ROUNDING = 0.01  # of a sum of probabilities that are written with few digits


def probabilities_in(row: Row, columns: Sequence[str], labels: Sequence[str]) -> dict[str, float] | None:
    """Return the probability of each label that a row gives, by label; None if its only column has something else.

    A single column maps them, {label: probability}.  Of several columns each has the probability of one of the
    `labels`, by default that of its name.  Raises UserError for what is no probability.
    """
    if len(columns) > 1:
        cells: Mapping[Any, Any] = {
            label: row.cell(column) for label, column in zip(labels or columns, columns, strict=True)
        }
        if all(map(is_empty, cells.values())):
            raise UserError(f"there is no label; {NO_LABEL}")
    else:
        cells = as_value(row.cell(columns[0]))
        if not isinstance(cells, Mapping):
            return None
    return {spelled(label).strip(): probability(cell, f"label '{spelled(label):.60}'") for label, cell in cells.items()}


def probability(cell: Any, what: str) -> float:
    """Return a cell as a probability; an empty one is 0, as in a table of labels that few rows have.

    Raises UserError for any other cell, also for NaN, which a teacher that broke writes; `what` has it.
    """
    if is_empty(cell) and not isinstance(cell, float):
        return 0.0
    number = math.nan
    if not isinstance(cell, bool):
        with suppress(TypeError, ValueError):
            number = float(cell)
    if not 0 <= number <= 1:
        raise UserError(f"{what}: expected a probability from 0 to 1, found {shortened(cell)}")
    return number


def as_array(given: Mapping[str, float], labels: Sequence[str]) -> np.ndarray:
    """Return probabilities (C,) in the order of `labels`; the others are 0.  Raises UserError for an unknown label."""
    probabilities = np.zeros(len(labels))
    for label, probability in given.items():
        probabilities[index_of(label, labels)] = probability
    return probabilities


def as_distribution(given: Mapping[str, float], labels: Sequence[str]) -> np.ndarray:
    """As `as_array`, for probabilities that exclude one another.  Raises UserError unless their sum is about 1."""
    return distribution(as_array(given, labels))


def distribution(probabilities: np.ndarray) -> np.ndarray:
    """Return probabilities (C,) that exclude one another, divided by their sum.

    Raises UserError unless that is about 1.
    """
    total = probabilities.sum()
    if abs(total - 1) > _ROUNDING + 1e-9:
        raise UserError(
            f"the probabilities of the labels sum to {total:.4g}, expected 1; divide them, or counts of annotators, by "
            "their sum"
        )
    return probabilities / total

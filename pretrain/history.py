"""The log of a run, read back from its metrics.jsonl: arrays over its steps, and its measurements.

Legend: S logged steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ernie.errors import UserError
from ernie.metrics import Score
from ernie.train.log import METRICS_FILE, read_records


class Measurement(NamedTuple):
    """One task measured on held-out documents after `step`, by its headline metric."""

    step: int
    stage: int
    ends_stage: bool
    task: str
    score: Score


@dataclass(frozen=True)
class History:
    """A run's steps as arrays (S,), the losses as one array (S,) per task (NaN where a step did not train it), and the
    measurements in order.

    `seconds` and `waited` are in seconds; `padding` is a share; `skipped` marks steps that updated no weights.
    """

    steps: np.ndarray
    stages: np.ndarray
    tokens: np.ndarray
    padding: np.ndarray
    seconds: np.ndarray
    waited: np.ndarray
    rate: np.ndarray
    gradient_norm: np.ndarray
    skipped: np.ndarray
    losses: dict[str, np.ndarray]
    measurements: list[Measurement]

    @property
    def done(self) -> int:
        """The number of steps that the run has done."""
        return int(self.steps[-1]) + 1 if len(self.steps) else 0

    @property
    def waiting(self) -> float:
        """The share of time spent waiting for data, without the first step, for which nothing was prefetched."""
        rest = slice(1, None) if len(self.steps) > 1 else slice(None)
        return float(self.waited[rest].sum() / self.seconds[rest].sum())

    def measured(self, task: str) -> list[Measurement]:
        """Return the measurements of one task."""
        return [measurement for measurement in self.measurements if measurement.task == task]


def read_history(folder: Path) -> History:
    """Return the history of the run in `folder`.  Raises UserError if its metrics file is missing or damaged."""
    with reading_records(folder):
        return _history(read_records(folder))


@contextmanager
def reading_records(folder: Path) -> Iterator[None]:
    """Raise UserError for a record of a run's metrics file that lacks something or has something else in its place."""
    try:
        yield
    except UserError:  # a ValueError, too
        raise
    except (LookupError, TypeError, ValueError, AttributeError, StopIteration) as error:
        raise UserError(
            f"{folder / METRICS_FILE}: a record lacks what this version writes ({type(error).__name__}: {error}); "
            "the file is damaged or was written by another version"
        ) from error


def _history(records: Sequence[dict[str, Any]]) -> History:
    steps = [record for record in records if record["kind"] == "step"]

    def column(key: str, dtype: type = float) -> np.ndarray:
        return np.array([record[key] for record in steps], dtype)

    return History(
        steps=column("step", int),
        stages=column("stage", int),
        tokens=column("tokens"),
        padding=column("padding"),
        seconds=column("seconds"),
        waited=column("waited"),
        rate=column("rate"),
        gradient_norm=column("gradient_norm"),  # None, not finite, becomes NaN
        skipped=np.diff(column("skipped", int), prepend=0) > 0,
        losses=_losses(steps),
        measurements=[_measurement(record) for record in records if record["kind"] == "probe"],
    )


def _losses(steps: Sequence[dict[str, Any]]) -> dict[str, np.ndarray]:
    losses: dict[str, np.ndarray] = {}
    for index, record in enumerate(steps):
        for task, loss in record["loss"].items():
            losses.setdefault(task, np.full(len(steps), np.nan))[index] = np.nan if loss is None else loss
    return losses


def _measurement(record: dict[str, Any]) -> Measurement:
    headline = next(iter(record["scores"].values()))  # None in it is what was not finite
    values: dict[str, Any] = {key: np.nan if value is None else value for key, value in headline.items()}
    values["draws"] = [np.nan if draw is None else draw for draw in values.get("draws", ())]
    return Measurement(record["step"], record["stage"], record["ends_stage"], record["task"], Score(**values))

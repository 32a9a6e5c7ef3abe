"""The log of a run, read back from its metrics.jsonl: arrays over its steps, and its measurements.

Legend: S logged steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Any, NamedTuple

import numpy as np

from ernie.errors import UserError
from ernie.json_file import check_kind, parsing
from ernie.metrics import Score
from ernie.train.log import METRICS_FILE, read_records

_REMEDY = "The file is damaged or was written by another version."
_NUMBER = (float, NoneType)  # None stands for what was not finite
_SCORE = {
    **{"name": str, "value": _NUMBER, "low": _NUMBER, "high": _NUMBER, "majority": _NUMBER, "count": int},
    "draws?": [_NUMBER],
}
_KINDS = {
    "step": {
        **{"stage": int, "skipped": int, "tokens": float, "padding": float, "seconds": float, "waited": float},
        **{"rate": float, "gradient_norm": _NUMBER, "loss": {str: _NUMBER}, "samples?": {str: str}},
    },
    "probe": {"stage": int, "ends_stage": bool, "task": str, "scores": {str: _SCORE}},
}


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

    `seconds` and `waited` are in seconds; `padding` is a fraction; `skipped` marks steps that updated no weights.
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
        """The fraction of time spent waiting for data, without the first step, for which nothing was prefetched."""
        rest = slice(1, None) if len(self.steps) > 1 else slice(None)
        return float(self.waited[rest].sum() / self.seconds[rest].sum())

    def measured(self, task: str) -> list[Measurement]:
        """Return the measurements of one task."""
        return [measurement for measurement in self.measurements if measurement.task == task]


def read_history(folder: Path) -> History:
    """Return the history of the run in `folder`.  Raises UserError if its metrics file is missing or damaged."""
    with reading_records(folder):
        return _history(read_checked(folder))


def read_checked(folder: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """Read the records of a pretraining run, of one `kind` or of all.

    Raises UserError for one that lacks a key, or has something else under it.
    """
    records = read_records(folder, kind)
    for record in records:
        if isinstance(record["kind"], str) and (expected := _KINDS.get(record["kind"])) is not None:
            place = f"{folder / METRICS_FILE}: {record['kind']} {record['step']}"
            check_kind(record, expected, place, _REMEDY)
            if not record.get("scores", True):
                raise UserError(f"{place}: scores: is empty. {_REMEDY}")
    return records


@contextmanager
def reading_records(folder: Path) -> Iterator[None]:
    """Raise UserError for records of a run's metrics file that do not fit together."""
    with parsing(folder / METRICS_FILE, _REMEDY):
        yield


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

"""Checkpoints of a trial: an interrupted trial resumes exactly where it stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ernie.model.weights import arrays, read_arrays, save_arrays, set_weights
from ernie.train.checkpoint import (
    Checkpoints,
    TrainerState,
    check,
    read_progress,
    read_trainer_state,
    write_state,
)
from ernie.train.run_folder import CHECKPOINTS
from ernie.train.trainer import Trainer
from inference.task_model import TaskModel

_WEIGHTS, _BEST = "model.safetensors", "best.safetensors"
_EVALUATION = {"step": int, "epoch": float, "scores": {str: float}, "loss": float, "seconds": float}
_PROGRESS_KEYS = {
    **{"identity": str, "step": int, "failed?": int, "tokens?": int, "seconds?": float},
    **{"losses": [float], "evaluations": [_EVALUATION]},
}
_FIELDS = ("step", "failed", "tokens", "seconds", "losses")  # of TrialState, stored in the JSON file as they are


@dataclass(frozen=True)
class Evaluation:
    """The scores on the dev split after `step` steps (`epoch` epochs, may be fractional), the deciding one first.

    `loss` is the mean training loss since the previous evaluation, `seconds` the time spent on all steps so far.
    """

    step: int
    epoch: float
    scores: dict[str, float]
    loss: float
    seconds: float

    @property
    def headline(self) -> float:
        """The deciding score."""
        return next(iter(self.scores.values()))


@dataclass
class TrialState:
    """The progress of a fine-tuning: `step` steps done, `failed` of which changed nothing because they were not
    finite.  They processed `tokens` tokens in `seconds`.

    `losses` holds the training losses since the last of the `evaluations`, `best` the weights at the best of these.
    """

    step: int = 0
    failed: int = 0
    tokens: int = 0
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    best: dict[str, np.ndarray] = field(default_factory=dict)


class TrialCheckpoints:
    """The checkpoint of one trial in its `folder`, rewritten every `minutes` (0: never).

    A checkpoint with another `identity` is ignored.  `interrupted` returns whether this process has received a signal;
    `stop` lets the signal act if any process has received one.
    """

    def __init__(
        self, folder: Path, identity: str, minutes: float, interrupted: Callable[[], bool], stop: Callable[[], None]
    ):
        self._checkpoints = Checkpoints(folder / CHECKPOINTS, keep_last=1)
        self._identity, self._seconds, self._interrupted, self._stop = identity, 60 * minutes, interrupted, stop
        self._saved_at = time.monotonic()

    @cached_property
    def found(self) -> Path | None:
        """The checkpoint to resume from, or None.  Raises UserError when it is damaged."""
        latest = self._checkpoints.latest()
        if latest is None or _read_record(latest)["identity"] != self._identity:
            return None
        check(latest)
        return latest

    @property
    def step(self) -> int:
        """The number of steps done before."""
        return 0 if self.found is None else int(_read_record(self.found)["step"])

    def is_due(self) -> bool:
        """Return whether a checkpoint should be written now."""
        return self._interrupted() or bool(self._seconds and time.monotonic() - self._saved_at > self._seconds)

    def save(self, state: TrialState, model: TaskModel, trainer: TrainerState) -> None:
        """Write a checkpoint.  Only rank 0 does."""
        progress = {
            "identity": self._identity,
            **{name: getattr(state, name) for name in _FIELDS},
            "evaluations": [asdict(evaluation) for evaluation in state.evaluations],
        }

        def write(folder: Path) -> None:
            save_arrays(arrays(model), folder / _WEIGHTS)
            save_arrays(state.best, folder / _BEST)
            write_state(folder, trainer, progress)

        self._checkpoints.save(state.step, write)

    def saved(self) -> None:
        """Record in every process that a checkpoint was written, and act on a pending signal."""
        self._saved_at = time.monotonic()
        self._stop()


def read_trial_state(checkpoint: Path) -> TrialState:
    """Read the progress of a trial from its checkpoint."""
    record = _read_record(checkpoint)
    evaluations = [Evaluation(**evaluation) for evaluation in record["evaluations"]]
    return TrialState(
        **{name: record[name] for name in _FIELDS if name in record},
        evaluations=evaluations,
        best=read_arrays(checkpoint / _BEST),
    )


def set_model(model: TaskModel, checkpoint: Path) -> None:
    """Load a checkpoint's weights into a full model, one that is not split over processes."""
    set_weights(model, read_arrays(checkpoint / _WEIGHTS), str(checkpoint / _WEIGHTS))


def set_trainer(trainer: Trainer, checkpoint: Path) -> None:
    """Restore the state of a trainer from a checkpoint."""
    trainer.set_state(read_trainer_state(checkpoint, _remedy(checkpoint)))


def _read_record(checkpoint: Path) -> dict[str, Any]:
    return read_progress(checkpoint, _PROGRESS_KEYS, _remedy(checkpoint))


def _remedy(checkpoint: Path) -> str:
    return f"Delete {checkpoint} to start its trial over."

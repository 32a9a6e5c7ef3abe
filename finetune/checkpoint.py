"""What a trial that was cut short goes on from, as if nothing had happened."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ernie.model.weights import arrays, read_arrays, save_arrays, set_weights
from ernie.saved import read_json
from ernie.train.checkpoint import Checkpoints, check
from ernie.train.loss_scale import LossScale
from ernie.train.trainer import Trainer
from finetune.model import FinetunedModel

FOLDER = "checkpoints"
_WEIGHTS, _BEST, _OPTIMIZER, _STATE = "model.safetensors", "best.safetensors", "optimizer.safetensors", "state.json"
_TOLD = ("step", "tokens", "seconds", "losses")  # of a course, as the state tells them


@dataclass(frozen=True)
class Evaluation:
    """The scores on the dev split after `step` steps (`epoch` passes, in part), the deciding one first.

    `loss` is the mean of the training loss since the evaluation before, `seconds` the time spent on all steps so far.
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
class Course:
    """How far a fine-tuning is: `step` steps are done, which took `seconds` for so many `tokens`.

    `losses` are those since the last of the `evaluations`, and `best` are the weights of the best of these.
    """

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    losses: list[float] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    best: dict[str, np.ndarray] = field(default_factory=dict)


class TrialCheckpoints:
    """The checkpoint of one trial, whose folder is `place`: written again every so many `minutes` (0: never).

    One of something else than `identity` says is none of this trial's.  `asked` says whether a signal has come, and
    `stop` lets it act if one has come to any process.
    """

    def __init__(self, place: Path, identity: str, minutes: float, asked: Callable[[], bool], stop: Callable[[], None]):
        self._checkpoints = Checkpoints(place / FOLDER, keep_last=1)
        self._identity, self._seconds, self._asked, self._stop = identity, 60 * minutes, asked, stop
        self._saved = time.monotonic()

    @cached_property
    def found(self) -> Path | None:
        """The checkpoint to go on from, if there is one.  Raises UserError when it is damaged."""
        latest = self._checkpoints.latest()
        if latest is None or _state(latest)["identity"] != self._identity:
            return None
        check(latest)
        return latest

    @property
    def step(self) -> int:
        """How many steps are done already."""
        return 0 if self.found is None else int(_state(self.found)["step"])

    def is_due(self) -> bool:
        """Whether another one should be written now."""
        return self._asked() or bool(self._seconds and time.monotonic() - self._saved > self._seconds)

    def save(self, course: Course, model: FinetunedModel, optimizer: dict[str, np.ndarray], trainer: Trainer) -> None:
        """Write one, as the first process does."""
        scale = trainer.loss_scale
        state = {
            "identity": self._identity,
            **{name: getattr(course, name) for name in _TOLD},
            "evaluations": [asdict(one) for one in course.evaluations],
            "bad_steps": trainer.bad_steps,
            "loss_scale": None if scale is None else asdict(scale),
        }

        def write(folder: Path) -> None:
            save_arrays(arrays(model), folder / _WEIGHTS)
            save_arrays(course.best, folder / _BEST)
            save_arrays(optimizer, folder / _OPTIMIZER)
            (folder / _STATE).write_text(json.dumps(state) + "\n", encoding="utf-8")

        self._checkpoints.save(course.step, write)

    def saved(self) -> None:
        """One was written, as every process has to be told; where a signal has come it acts now."""
        self._saved = time.monotonic()
        self._stop()


def read_course(checkpoint: Path) -> Course:
    """How far a trial was."""
    state = _state(checkpoint)
    evaluations = [Evaluation(**one) for one in state["evaluations"]]
    return Course(
        **{name: state[name] for name in _TOLD}, evaluations=evaluations, best=read_arrays(checkpoint / _BEST)
    )


def set_model(model: FinetunedModel, checkpoint: Path) -> None:
    """Give a whole model the weights that it had."""
    set_weights(model, read_arrays(checkpoint / _WEIGHTS), str(checkpoint / _WEIGHTS))


def set_trainer(trainer: Trainer, checkpoint: Path) -> None:
    """Give a trainer what it knew."""
    state = _state(checkpoint)
    trainer.optimizer.set_state(read_arrays(checkpoint / _OPTIMIZER))
    trainer.bad_steps = state["bad_steps"]
    if trainer.loss_scale and state["loss_scale"]:
        trainer.loss_scale = LossScale(**state["loss_scale"])


def _state(checkpoint: Path) -> dict[str, Any]:
    keys = {"identity": (str,), "step": (int,), "bad_steps": (int,), "losses": (list,), "evaluations": (list,)}
    return read_json(checkpoint / _STATE, keys, f"Delete {checkpoint}, and its trial begins anew.")

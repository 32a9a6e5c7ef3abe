"""Replay of a step of a pretraining run in one process, from the checkpoint before it."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from tqdm import tqdm

from ernie.data.batch import Packed, pack
from ernie.errors import UserError
from ernie.formatting import plural
from ernie.kernels.precision import Precision, precision
from ernie.model.weights import arrays, read_arrays, set_weights
from ernie.parallel.layout import AXES, ParallelConfig
from ernie.parallel.serial import SerialModel
from ernie.replay.observer import Observer
from ernie.replay.reading import Place, Reading
from ernie.train.checkpoint import OPTIMIZER, Checkpoints, TrainerState, check
from ernie.train.origin import origin
from ernie.train.run_folder import CHECKPOINTS, MODEL, ORIGIN
from ernie.train.trainer import StepReport
from pretrain import folder as run_folder
from pretrain.config import PretrainConfig
from pretrain.history import read_checked
from pretrain.run import sample_hash
from pretrain.training import HEADS, Training

_WHEELS = ("paddlepaddle", "paddlepaddle-gpu")
_VERSIONS = ("ernie-continual", *_WHEELS)  # whose code computes a step
_DEGREE = re.compile(rf"({'|'.join(AXES)}) (\d{{1,6}})")  # in a run's origin, as ParallelConfig.described gives it
_ROUNDING = {"fp32": 1e-5, "bf16": 1e-3, "fp16": 1e-3}  # how far a layout or a machine may move losses and norms


class Agreement(NamedTuple):
    """How a replayed step (from 0) agrees with the run's record of it.

    `exact` if every number is the same.  `differences` are sentences about what differs by more than rounding.
    """

    step: int
    exact: bool
    differences: tuple[str, ...]

    @property
    def told(self) -> str:
        """The differences as a sentence."""
        return "; ".join(self.differences) or "the last digits of its loss or gradient norm"


class SampleLoss(NamedTuple):
    """A sample by itself, without dropout: its name, its origin, its mean loss and the norm of its gradient."""

    task: str
    name: tuple[int, int, int]
    place: str
    loss: float
    gradient_norm: float

    @property
    def is_wrong(self) -> bool:
        """Whether its loss or gradient is not finite."""
        return not (math.isfinite(self.loss) and math.isfinite(self.gradient_norm))

    def __str__(self) -> str:
        epoch, _, number = self.name
        return f"{self.task}: sample {number} of {self.place}, epoch {epoch}"


@dataclass
class Observed:
    """A step that was done under observation."""

    report: StepReport
    batches: list[tuple[str, Packed | None]]
    readings: list[Reading]
    kept: dict[Place, np.ndarray]
    bad_rows: np.ndarray | None
    agreement: Agreement | None  # None if the run has no record of the step
    weights: dict[str, np.ndarray] = field(repr=False)  # after the step
    optimizer: dict[str, np.ndarray] = field(repr=False)  # after the step


class _State(NamedTuple):
    """All that a step starts from."""

    weights: dict[str, np.ndarray]
    trainer: TrainerState


class Replay:
    """A run as it was ahead of one of its steps (from 0), with the same samples, dropout, weights and moments.

    It is built from the last checkpoint at or before the step, or with `from_start` from the beginning if there is
    none, and trained up to the step.  `agreements` has the steps on the way.  `precision` replaces the run's own.

    Raises UserError if the run has not come to the step or has no such checkpoint.  The same holds for a run of another
    version of the library, unless `other_version`, and for a corpus that is not there.  `corpus_folder` says where the
    corpus is now.
    """

    def __init__(
        self,
        folder: Path,
        step: int,
        *,
        corpus_folder: Path | None = None,
        precision: Precision | None = None,
        from_start: bool = False,
        other_version: bool = False,
        quiet: bool = True,
    ) -> None:
        config, corpus = run_folder.read(folder, corpus_folder)
        train = replace(config.train, max_bad_steps=2**31, precision=precision or config.train.precision)
        self.folder, self.step = folder, step
        self._trained_in = config.train.precision
        self.config: PretrainConfig = replace(config, train=train)
        self.origin = run_folder.read_origin(folder)
        self.records = {record["step"]: record for record in read_checked(folder, "step")}
        self.checkpoints = Checkpoints(folder / CHECKPOINTS)
        self._check_step()
        self.differing_versions = _differing_versions(self.origin)
        if self.differing_versions and not other_version:
            raise UserError(
                f"{folder}: was trained with {' and '.join(self.differing_versions)}. Install that, or give "
                "--other-version: a step may then be computed by other code"
            )
        self.since = self._nearest(from_start)
        checkpoint = self.checkpoints.path(self.since) if self.since else None
        if checkpoint is not None:
            check(checkpoint)
        self.training = Training(self.config, corpus, checkpoint=checkpoint)
        self.agreements: list[Agreement] = []  # of the steps before
        self._drawn: list[tuple[str, Packed | None]] | None = None
        try:
            self.layout = self._layout()
            self._serial = SerialModel(self.training.model, self.layout, self.training.model.loss)
            for _ in tqdm(range(self.since, step), unit="step", disable=quiet or None):
                self._advance()
            self._state = self._snapshot()
        except BaseException:
            self.close()
            raise

    def advance(self) -> None:
        """Do the step, and be ahead of the next one."""
        self._restore()
        self._advance()
        self.step += 1
        self._state = self._snapshot()

    @property
    def tolerance(self) -> float:
        """How far losses and gradient norms may be from the record without being called different."""
        return _ROUNDING[str(self.config.train.precision)]

    @property
    def notes(self) -> list[str]:
        """What makes the replay differ from the run by more than its documented rounding, as sentences."""
        found = [f"the run was trained with {version}" for version in self.differing_versions]
        wheels = [[name for name in _WHEELS if name in each["versions"]] for each in (self.origin, origin())]
        if wheels[0] != wheels[1]:
            names = " and ".join(wheels[0])
            found.append(f"the run was trained with {names}, and a GPU draws another dropout than a CPU")
        if self.config.train.precision != self._trained_in:
            found.append(f"the run was trained in {self._trained_in}, and is replayed in {self.config.train.precision}")
        changed = sorted({key for start in self.origin.get("resumed", []) for key in start["changed"]})
        if changed:
            found.append(
                f"the run was resumed with other values of {', '.join(changed)}; steps before that are replayed with "
                "the values of its configuration now"
            )
        return found

    def observe(self, keep: Collection[Place] = ()) -> Observed:
        """Do the step and read its tensors; keep the values of some of them.

        May be called again: every call starts from the same state.
        """
        self._restore()
        training, batches = self.training, self._draw()
        observer = Observer(training.trainer, batches, keep)
        with observer.watching(), self._precision():
            report = training.train(batches, observer.loss(self._serial.loss), self._serial.before, observer.reduced)
        return Observed(
            report,
            batches,
            observer.readings,
            observer.kept,
            observer.bad_rows,
            self._agreement(report),
            arrays(training.model),
            _whole(training.trainer.state()),
        )

    def sample_losses(self, task: str, batch: Packed) -> list[SampleLoss]:
        """Return the loss and the gradient of each sample of a batch by itself, with the weights ahead of the step."""
        self._restore()
        model, source = self.training.model, self.training.streams[task].source
        found, samples_of = [], cache(source.samples_of)
        model.eval()  # without dropout, which would be another one
        for name in map(tuple, batch.samples.tolist()):
            epoch, index, number = name
            alone = self.training.at_step(task, pack([samples_of(epoch, index)[number]], np.array([name]), source.seed))
            assert alone is not None, "it is here"
            with self._precision():
                loss = model.loss(task, alone)
                (loss.total / max(1, loss.count)).backward()
            _, [norm] = self.training.trainer.distributed.totals([], [list(model.parameters())])
            self.training.trainer.optimizer.clear()
            mean = float(loss.total) / max(1, loss.count)
            found.append(SampleLoss(task, name, source.place(index), mean, norm))
        return found

    @property
    def weights(self) -> dict[str, np.ndarray]:
        """The weights ahead of the step."""
        return self._state.weights

    @property
    def moments(self) -> dict[str, np.ndarray]:
        """The optimizer's arrays ahead of the step."""
        return _whole(self._state.trainer)

    @property
    def loss_scale(self) -> float:
        """The factor of the loss in fp16, by which gradients are larger until the update; else 1."""
        scale = self._state.trainer.loss_scale
        return 1.0 if scale is None else scale.value

    def rank_of(self, micro: int) -> int | None:
        """Return the replica that computed a micro-batch (from 0) in the run, None for a run without replicas."""
        return micro % self.layout.replicas if self.layout.replicas > 1 else None

    def place(self, task: str, name: Sequence[int]) -> str:
        """Return where the document of a sample is from."""
        return self.training.streams[task].source.place(int(name[1]))

    def close(self) -> None:
        """Stop the workers."""
        self.training.close()

    def _check_step(self) -> None:
        done = max([0, *(step + 1 for step in self.records), *self.checkpoints.steps()])
        last = min(done + 1, sum(sum(stage.values()) for stage in self.config.schedule.table))
        if not 0 <= self.step < last:
            begun = "" if last == done else ", and may have begun another one"
            raise UserError(
                f"--step {self.step + 1}: the run in {self.folder} has done {plural(done, 'step')}{begun}; steps count "
                "from 1"
            )

    def _nearest(self, from_start: bool) -> int:
        """Return the number of steps after which the replay begins."""
        steps = self.checkpoints.steps()
        before = [step for step in steps if step <= self.step]
        if before:
            return before[-1]
        if self.step and not from_start:
            earliest = f"the earliest was written after step {steps[0]:,}" if steps else "it has none"
            raise UserError(
                f"{self.folder}: has no checkpoint from before step {self.step + 1:,}: {earliest}. --from-start trains "
                f"the {plural(self.step, 'step')} before it once more"
            )
        return 0

    def _layout(self) -> ParallelConfig:
        """Return how the step was spread over processes, as the run's origin has it."""
        starts = [start for start in self.origin.get("resumed", []) if start.get("step", 0) <= self.step]
        layout = [self.origin, *starts][-1].get("layout", "one process")
        degrees: dict[str, Any] = {"sequence": self.config.parallel.sequence and "tensor" in layout}
        for part in layout.split(" x ") if layout != ParallelConfig().described() else ():
            if not (match := _DEGREE.fullmatch(part)):
                raise UserError(f"{self.folder / ORIGIN}: layout: expected such as 'data 2', found {part!r:.40}")
            degrees[match[1]] = int(match[2])
        found = ParallelConfig(**degrees)
        found.check(self.config.sizes(self.training.model.ernie.config))
        return found

    def _precision(self) -> Any:
        return precision(self.config.train.precision, self.config.train.amp_level)

    def _advance(self) -> None:
        batches, self._drawn = self._draw(), None
        with self._precision():
            report = self.training.train(batches, self._serial.loss, self._serial.before)
        agreement = self._agreement(report)
        if agreement is not None:
            self.agreements.append(agreement)

    def _draw(self) -> list[tuple[str, Packed | None]]:
        """Return the batches of the step, which are drawn once."""
        if self._drawn is None:
            self._drawn = self.training.draw()
        return self._drawn

    def _agreement(self, report: StepReport) -> Agreement | None:
        """Compare the step that was done last with the run's record of it."""
        step = self.training.step - 1
        record = self.records.get(step)
        if record is None:
            return None
        names = dict.fromkeys(self.training.schedule[step].draws)
        samples = {name: sample_hash(self.training.streams[name].checksum) for name in names}
        numbers = {
            "learning rate": (record["rate"], self.training.lr(step)),
            **{f"loss of {task}": (record["loss"].get(task), loss) for task, loss in report.losses.items()},
            "gradient norm": (record["gradient_norm"], report.gradient_norm),
        }
        told, exact = [], True
        if "samples" in record and record["samples"] != samples:
            told.append("other samples")
        for what, (recorded, replayed) in numbers.items():
            one = math.nan if recorded is None else float(recorded)
            exact = exact and (one == replayed or not (math.isfinite(one) or math.isfinite(replayed)))
            if not near(one, replayed, self.tolerance):
                told.append(f"{what}: {replayed:.9g} in the replay, {one:.9g} in the record")
        return Agreement(step, exact and not told, tuple(told))

    def _snapshot(self) -> _State:
        return _State(arrays(self.training.model), self.training.trainer.state())

    def _restore(self) -> None:
        training, state = self.training, self._state
        set_weights(training.model, state.weights, "the step before")
        training.trainer.set_state(state.trainer)
        training.trainer.optimizer.clear()
        training.step = self.step


def near(one: float | None, other: float | None, tolerance: float) -> bool:
    """Whether two numbers of a record are equal up to a fraction, or both not finite (None)."""
    one, other = (math.nan if each is None else each for each in (one, other))
    if not (math.isfinite(one) and math.isfinite(other)):
        return math.isfinite(one) == math.isfinite(other)
    return abs(one - other) <= tolerance * max(abs(one), abs(other))


def _whole(state: TrainerState) -> dict[str, np.ndarray]:
    return {name: values[...] for name, values in state.optimizer.items()}


def _differing_versions(recorded: Mapping[str, Any]) -> list[str]:
    """Return the versions of what computes a step that a run was trained with, where this process has others."""
    now = origin()["versions"]
    return [
        f"{name} {version}, this is {now[name]}"
        for name, version in recorded["versions"].items()
        if name in _VERSIONS and name in now and now[name] != version
    ]


def saved_arrays(checkpoint: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the weights and the optimizer's arrays of a checkpoint, named as in a model in training."""
    check(checkpoint)
    weights = {f"ernie.{name}": found for name, found in read_arrays(checkpoint / MODEL / "model.safetensors").items()}
    weights |= {f"heads.{name}": found for name, found in read_arrays(checkpoint / HEADS).items()}
    return weights, read_arrays(checkpoint / OPTIMIZER)

"""One training step: accumulate gradients over micro-batches, normalize by target counts, clip, update."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from paddle import Tensor, nn

from ernie.data import seeded_rng
from ernie.data.batch import Packed
from ernie.kernels.precision import as_given
from ernie.parallel.collectives import all_reduce
from ernie.parallel.distributed_model import DistributedModel
from ernie.parallel.layout import REPLICAS
from ernie.parallel.mesh import Mesh
from ernie.parallel.micro_batch import MicroBatch
from ernie.train.adam_config import AdamConfig
from ernie.train.adapter import Adapter
from ernie.train.adversarial_config import AdversarialConfig
from ernie.train.adversary import Adversary
from ernie.train.checkpoint import TrainerState
from ernie.train.loss_scale import LossScale
from ernie.train.optimizer import Optimizer

if TYPE_CHECKING:
    from ernie.model.losses import Loss


class TrainingStopped(RuntimeError):
    """Raised after too many consecutive steps with a non-finite loss or gradient."""


@dataclass
class StepReport:
    """The outcome of one step: the mean loss per target of each task; `skipped` if nothing was updated.

    `failed` if the step was skipped, and not because the loss scale of fp16 was too large.
    """

    losses: dict[str, float] = field(default_factory=dict)
    gradient_norm: float = 0.0
    skipped: bool = False
    failed: bool = False


class Trainer:
    """Trains a layer with AdamW.

    `clip` is the maximum gradient norm (0 disables clipping).  Parameters whose names start with a prefix in
    `separate_clip_groups` form a clipping group of their own.  They may learn from a separate loss, whose gradients
    have another magnitude.  A step with a non-finite loss or gradient is skipped; after `max_bad_steps` of them in a
    row, `step` raises TrainingStopped.  `lr_factors` multiply the learning rate of the parameters they name.
    `loss_scale` is the dynamic loss scale for fp16 training; steps skipped while it adapts do not count as bad.  With
    `separate_moments` each task has its own AdamW moments, and each step must be of a single task.  With an `average`
    above 0 moving averages of the weights are kept with this decay (see Optimizer).  `adversarial` names the table of
    embeddings that is moved to add to each step's gradients (see Adversary).  An `adapter` of the layer learns in place
    of the weights that follow from it.

    The processes of `mesh` train together: the layer is reduced to this process's part of it, in place (see
    DistributedModel).  All are given the same step, and each computes its own micro-batches.
    """

    def __init__(
        self,
        layer: nn.Layer,
        adam: AdamConfig,
        *,
        clip: float,
        max_bad_steps: int,
        seed: int,
        lr_factors: Mapping[str, float] | None = None,
        separate_clip_groups: Sequence[str] = (),
        loss_scale: LossScale | None = None,
        separate_moments: bool = False,
        average: float = 0.0,
        adversarial: tuple[AdversarialConfig, str] | None = None,
        adapter: Adapter | None = None,
        mesh: Mesh | None = None,
    ):
        self.layer = layer
        self._mesh = mesh or Mesh()
        self.distributed = DistributedModel(layer, self._mesh, adapter is None and adversarial is None)
        self.optimizer = Optimizer(self.distributed.state, adam, lr_factors, average)
        self.bad_steps = 0  # consecutive
        self.loss_scale = loss_scale
        self._clip = clip
        names = self.optimizer.parameters
        apart = {name for name in names if name.startswith(tuple(separate_clip_groups))}
        self._groups = [set(names) - apart, apart] if separate_clip_groups else [set(names)]
        self._max_bad_steps, self._separate_moments = max_bad_steps, separate_moments
        self._seed = seed
        self._adapter = adapter
        self._adversary: Adversary | None = None
        if adversarial is not None:
            config, table = adversarial
            self._adversary = Adversary(config, table, self.optimizer)

    @as_given()
    def step(
        self,
        step: int,
        batches: Sequence[tuple[str, Packed | None]],
        loss: Callable[[str, Packed], Loss],
        lr: float,
        before: Callable[[Sequence[MicroBatch]], None] | None = None,
        reduced: Callable[[StepReport], None] | None = None,
    ) -> StepReport:
        """Make one update from the batches of one or several tasks.

        If all are of one task, those of other processes may be None.  `before` is given the micro-batches ahead of
        their passes.  `reduced` is called when the gradients of all passes are summed, ahead of the update.

        Each task's loss is divided by its number of targets in the step, and weighted by its fraction of the
        micro-batches.  Dropout is seeded by the step and the micro-batch.  A step is thus reproducible without the
        steps before it, and does not depend on which process computes a micro-batch.
        """
        self.layer.train()
        self._mesh.watch.at(step=step, doing="forward and backward")
        counts = self._target_counts(batches)
        tasks = [name if count else None for (name, _), count in zip(batches, counts, strict=True)]  # None: no loss
        with_targets = sum(map(bool, counts))
        targets: dict[str, int] = {}
        weights: dict[str, float] = {}
        for task, count in zip(tasks, counts, strict=True):
            if task is not None:
                targets[task] = targets.get(task, 0) + count
                weights[task] = weights.get(task, 0.0) + 1 / with_targets
        scale = self.loss_scale.value if self.loss_scale else 1.0
        factors = {task: weights[task] / targets[task] * scale for task in targets}

        def made(*moves: int) -> dict[int, MicroBatch]:
            found = {
                number: MicroBatch(name, batch, factors.get(name, 0.0), self._dropout_key(step, number, *moves))
                for number, (name, batch) in enumerate(batches)
                if batch is not None
            }
            if before is not None:
                before(list(found.values()))
            return found

        def once_more(move: int) -> None:
            self.distributed.backward(tasks, made(move), loss)
            self.distributed.reduce_gradients()

        assert len(targets) <= 1 or not self._separate_moments, f"a step of {len(targets)} tasks with separate moments"
        found = self.distributed.backward(tasks, made(), loss)
        self.distributed.reduce_gradients()
        if self._adversary is not None and targets:
            self._adversary.add_gradients(once_more)
        self._mesh.watch.at(doing="the update")
        totals, norms = self.distributed.totals(
            [[total for of, total in found if of == name] for name in targets], list(map(self._of_group, self._groups))
        )
        norms = [norm / scale for norm in norms]
        losses = {name: total / targets[name] for name, total in zip(targets, totals, strict=True)}
        report = StepReport(losses, math.hypot(*norms))
        if reduced is not None:
            reduced(report)
        if math.isfinite(report.gradient_norm) and _has_finite_losses(report):
            scales = {}
            for group, norm in zip(self._groups, norms, strict=True):
                excess = norm / self._clip if self._clip else 0.0
                scales.update(dict.fromkeys(group, (1 / excess if excess > 1 else 1.0) / scale))
            self.optimizer.step(lr, scales, owner="".join(targets) if self._separate_moments else "")
            if self._adapter is not None:
                self._adapter.merge()
            self.bad_steps = 0
            if self.loss_scale:
                self.loss_scale.rise()
        else:
            self._skip(step, batches, report)
        return report

    def state(self) -> TrainerState:
        """Return all that a resume needs besides the weights.  A collective call: rank 0 gets the full arrays."""
        scale = None if self.loss_scale is None else replace(self.loss_scale)
        return TrainerState(self.optimizer.state(), self.bad_steps, scale)

    def set_state(self, state: TrainerState) -> None:
        """Continue from a `state()`, which every process is given in full."""
        self.optimizer.set_state(state.optimizer)
        self.bad_steps = state.bad_steps
        if self.loss_scale is not None and state.loss_scale is not None:
            self.loss_scale = replace(state.loss_scale)

    def averages(self) -> dict[str, np.ndarray]:
        """Return the moving averages of the weights on rank 0, if they are kept.  A collective call."""
        return self.optimizer.averages()

    def gather_weights(self, full_model: nn.Layer | None) -> None:
        """Copy the weights of all processes into rank 0's `full_model`, where the model is split.

        A collective call.  Where the model is not split, `full_model` is the layer itself, and nothing is copied.
        """
        if self._mesh.splits_model:
            self.distributed.state.gather_weights(full_model)

    def _target_counts(self, batches: Sequence[tuple[str, Packed | None]]) -> list[int]:
        """Return the number of targets of each batch, whichever process has it."""
        known = [0 if batch is None else batch.targets for _, batch in batches]
        if all(batch is not None for _, batch in batches):
            return known
        return list(map(int, all_reduce(self._mesh, known, REPLICAS)))

    def _of_group(self, group: Collection[str]) -> list[Tensor]:
        return [parameter for name, parameter in self.optimizer.parameters.items() if name in group]

    def _dropout_key(self, step: int, number: int, *moves: int) -> int:
        return seeded_rng.key(self._seed, "dropout", step, number, *moves)

    def _skip(self, step: int, batches: Sequence[tuple[str, Packed | None]], report: StepReport) -> None:
        self.optimizer.clear()
        report.skipped = True
        if self.loss_scale and _has_finite_losses(report) and self.loss_scale.fall():
            return
        report.failed = True
        self.bad_steps += 1
        if self.bad_steps >= self._max_bad_steps:
            losses = ", ".join(f"{name} {value:g}" for name, value in report.losses.items())
            # With targets, if this process has such a batch.
            name, batch = max(
                ((name, batch) for name, batch in batches if batch is not None),
                key=lambda found: bool(found[1].targets),
            )
            first = batch.samples[0].tolist()
            raise TrainingStopped(
                f"step {step + 1:,}: loss or gradient was not finite {self.bad_steps} times in a row (losses: "
                f"{losses}; gradient norm {report.gradient_norm:g}). The last batch of '{name}' begins with sample "
                f"{first[2]} of item {first[1]}, epoch {first[0]}."
            )


def _has_finite_losses(report: StepReport) -> bool:
    return all(map(math.isfinite, report.losses.values()))

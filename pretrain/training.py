"""The training of a run on this process, built from its configuration: model, trainer and streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import NoneType
from typing import Any

from ernie.data.batch import Packed
from ernie.data.shards import Corpus
from ernie.errors import UserError
from ernie.formatting import plural
from ernie.model.losses import Loss
from ernie.model.weights import arrays, load_weights, read_arrays, set_weights
from ernie.parallel.mesh import Mesh
from ernie.parallel.micro_batch import MicroBatch
from ernie.text.tokenizer import Tokenizer
from ernie.train.checkpoint import read_progress, read_trainer_state, remedy
from ernie.train.loss_scale import LossScale
from ernie.train.run_folder import MODEL
from ernie.train.trainer import StepReport, Trainer
from pretrain.config import PretrainConfig
from pretrain.feeds import open_streams
from pretrain.model import MultiTaskModel, build_model
from pretrain.schedule import Schedule

HEADS = "heads.safetensors"  # in a checkpoint
_POSITION = {"epoch": int, "block": int, "batch": int, "drawn": int, "digest": str}  # in a data shard
_PROGRESS_KEYS = {
    **{"step": int, "skipped": int, "failed?": int, "task_ids?": {str: int}},
    "streams": {str: ({"drawn": int, "lanes": [(_POSITION, NoneType)]}, _POSITION)},
}


class Training:
    """The training of a pretraining run: model, trainer, streams and the next step.

    It starts from scratch or goes on from `checkpoint`.  Each process of `mesh` has its own, whose `model` is its part
    of the model.  The caller must check that the checkpoint is intact (`ernie.train.checkpoint.check`), once for all
    processes.  Raises UserError if the checkpoint has other tasks, or the model cannot be distributed as requested.
    """

    def __init__(
        self, config: PretrainConfig, corpus: Corpus, *, checkpoint: Path | None = None, mesh: Mesh | None = None
    ):
        self.config = config
        self.mesh = mesh or Mesh()
        self.schedule = Schedule(config.schedule, config.train.micro_batches)
        self._feed, self.streams = open_streams(config, corpus, self.mesh)
        self.model = self._build(corpus.tokenizer, checkpoint)
        self.mesh.layout.check(config.sizes(self.model.ernie.config))
        train = config.train
        self.trainer = Trainer(
            self.model,
            train.adam,
            clip=train.clip,
            max_bad_steps=train.max_bad_steps,
            seed=config.seed,
            loss_scale=LossScale() if train.precision == "fp16" else None,
            separate_moments=train.moments == "each_task",
            average=train.ema,
            mesh=self.mesh,
        )
        self.step = 0
        self.skipped = 0
        self.failed = 0  # of those skipped, all but the ones by which the loss scale of fp16 adapted
        if checkpoint is not None:
            self._resume(checkpoint)

    def lr(self, step: int) -> float:
        """Return the learning rate of a step."""
        lr, schedule = self.config.train.lr, self.schedule
        if not lr.each_stage:
            return lr.at(step, len(schedule))
        stage = schedule.stage_of(step)
        return lr.at(step - schedule.stage_start(stage), schedule.stage_length(stage))

    def draw(self) -> list[tuple[str, Packed | None]]:
        """Return the batches of the next step with their tasks, None for those that other processes make."""
        return [(task, self.at_step(task, next(self.streams[task]))) for task in self.schedule[self.step].draws]

    def at_step(self, task: str, batch: Packed | None) -> Packed | None:
        """Return a task's batch as the next step uses it, None for one that another process makes."""
        return batch and self.config.tasks[task].at(batch, self.step / len(self.schedule))

    def train(
        self,
        batches: Sequence[tuple[str, Packed | None]],
        loss: Callable[[str, Packed], Loss] | None = None,
        before: Callable[[Sequence[MicroBatch]], None] | None = None,
        reduced: Callable[[StepReport], None] | None = None,
    ) -> StepReport:
        """Do the next step on its batches; see `Trainer.step`.  `loss` is the model's own unless it is given."""
        step = self.step
        report = self.trainer.step(step, batches, loss or self.model.loss, self.lr(step), before, reduced)
        self.step = step + 1
        self.skipped += report.skipped
        self.failed += report.failed
        return report

    def close(self) -> None:
        """Stop the workers."""
        self._feed.close()

    def _build(self, tokenizer: Tokenizer, checkpoint: Path | None) -> MultiTaskModel:
        """Build the full model, with its initial weights or those of the checkpoint."""
        model = build_model(self.config, tokenizer)
        owners = {name: self.config.tasks[name].head_of or name for name in self.streams}
        for name, head in model.heads.items():  # its owner may never be scheduled: find a task that trains it
            trained_by = next(task for task, owner in owners.items() if owner == name)
            self.config.tasks[name].initialize(head, self.streams[trained_by].source.items)
        model.adopt_masked_head()
        if checkpoint is not None:
            self._check_tasks(model, read_state(checkpoint))
            load_weights(model.ernie, checkpoint / MODEL / "model.safetensors")
            # An extended schedule has heads that the checkpoint lacks: they keep their initial weights.
            heads = {**arrays(model.heads), **read_arrays(checkpoint / HEADS)}
            set_weights(model.heads, heads, str(checkpoint / HEADS))
        return model

    def _check_tasks(self, model: MultiTaskModel, state: dict[str, Any]) -> None:
        """Raise UserError unless all tasks of a checkpoint are there, with the same task ids and data shards."""
        for name, position in state["streams"].items():
            if (shards := len(position.get("lanes", [position]))) != self.config.data.data_shards:
                raise UserError(
                    f"data.data_shards: is {self.config.data.data_shards}, but the run has read its documents in "
                    f"{plural(shards, 'shard')} so far, whose positions would be lost; keep it at {shards}"
                )
            if name not in self.streams:
                raise UserError(
                    f"schedule: the run has learned {name}, which is not in it any more; a schedule can be extended. "
                    "To take a task out, start another run with model.start_from"
                )
        for name, number in state.get("task_ids", {}).items():
            if model.task_ids.get(name) != number:
                raise UserError(
                    f"schedule: {name} has learned with the task id {number}, and would get another one; name new "
                    "tasks after those that have been learned"
                )
        if state["step"] > len(self.schedule):
            raise UserError(
                f"schedule: has {len(self.schedule):,} steps, and the run has done {state['step']:,}; it can be "
                "extended, not cut"
            )

    def _resume(self, path: Path) -> None:
        state = read_state(path)
        self.trainer.set_state(read_trainer_state(path, remedy(path)))
        self.step, self.skipped, self.failed = state["step"], state["skipped"], state.get("failed", 0)
        for name, position in state["streams"].items():
            self.streams[name].seek(position)


def read_state(checkpoint: Path) -> dict[str, Any]:
    """Return the progress of a run that a checkpoint holds.  Raises UserError if it cannot be used."""
    return read_progress(checkpoint, _PROGRESS_KEYS, remedy(checkpoint))

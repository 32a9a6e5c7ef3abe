"""One fine-tuning: its model, its trainer and its progress, of which a checkpoint holds all that changes."""

from __future__ import annotations

import copy
import math
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import paddle
from paddle import nn

from ernie.data import seeded_rng
from ernie.data.batch import Packed, pack
from ernie.errors import NotFinite, Remark, TrainingFailed, UserError
from ernie.formatting import plural
from ernie.model.decoder import DecoderLayer
from ernie.model.embeddings import TextEmbedding
from ernie.model.encoder import EncoderLayer
from ernie.model.ernie import ErnieModel
from ernie.model.losses import Loss
from ernie.model.speech import SpeechFrontend
from ernie.model.translation import TranslationHead
from ernie.model.weights import arrays, check_finite, set_weights
from ernie.parallel.collectives import any_rank, on_rank0
from ernie.parallel.mesh import Mesh
from ernie.parallel.micro_batch import MicroBatch
from ernie.train.adapter import Adapter
from ernie.train.averages import holding
from ernie.train.loss_scale import LossScale
from ernie.train.trainer import StepReport, Trainer
from finetune.config import TrainConfig
from finetune.prepare import Prepared
from finetune.train.batches import Batches
from finetune.train.early_stopping import evaluations_since_best, is_out_of_patience
from finetune.train.grad_cache import GradCache
from finetune.train.model import TrainingModel
from finetune.train.steps import Samples, Step, micro_batches, planned_steps, split_steps
from finetune.train.teacher import Teacher
from finetune.train.trial_checkpoint import (
    Evaluation,
    TrialCheckpoints,
    TrialState,
    read_trial_state,
    set_model,
    set_trainer,
)
from inference.task_model import TaskModel
from tasks.downstream.base import FinetuneTask
from tasks.downstream.hooks import ComparesRows, OwnBatches, PartialTraining
from tasks.downstream.saved import read_head
from tasks.downstream.scoring import score_answers

_WORDS = "ernie.embedding.token.weight"


class Training:
    """The fine-tuning of an encoder with a head on the split `train`, scored on `dev`.

    It goes on from the checkpoint that was found, if any.  `model` is trained; `full_model` is the same, whole, where
    a mesh of processes splits the model.  The weights of the head are random, or those of the file `head`.
    The model learns from a `teacher`, if any, that has read the rows of train.  So many `workers` make the batches,
    or with 0 this process does.  A context manager, which ends the workers.
    """

    def __init__(
        self,
        ernie: ErnieModel,
        task: FinetuneTask,
        train: Prepared,
        dev: Prepared,
        config: TrainConfig,
        seed: int,
        mesh: Mesh,
        checkpoints: TrialCheckpoints | None,
        head: Path | None,
        teacher: Teacher | None,
        workers: int,
    ):
        self.task, self.config, self._mesh = task, config, mesh
        self._train, self._dev, self._checkpoints, self._seed = train, dev, checkpoints, seed
        checkpoint = None if checkpoints is None else checkpoints.found
        self.state = TrialState() if checkpoint is None else read_trial_state(checkpoint)
        self.model = self.full_model = _build_model(ernie, task, config, seed, mesh.layout.replicas, head, teacher)
        if checkpoint is not None:
            set_model(self.model, checkpoint)
        if mesh.splits_model and mesh.is_first:
            self.full_model = copy.deepcopy(self.model)
        self.model.teacher = teacher
        clipped_apart = task.separate_clip_groups if isinstance(task, PartialTraining) else ()
        self._trainer = Trainer(
            self.model,
            config.adam,
            clip=config.clip,
            max_bad_steps=config.max_bad_steps,
            seed=seed,
            lr_factors=layer_factors(self.model, config.layer_decay),
            separate_clip_groups=[f"head.{part}." for part in clipped_apart],
            average=config.ema,
            adversarial=(config.adversarial, _WORDS) if config.adversarial.epsilon else None,
            adapter=self.model.adapter,
            loss_scale=LossScale() if config.precision == "fp16" else None,
            mesh=mesh,
        )
        if checkpoint is not None:
            set_trainer(self._trainer, checkpoint)
        self.steps = planned_steps(train.examples, config, seed)
        self._sizes = [task.computed_tokens(e) if isinstance(task, OwnBatches) else e.tokens for e in train.examples]
        if mesh.is_first and (remark := config.lr.remark(len(self.steps))):
            warnings.warn(remark, Remark, 3)
        self._cache = GradCache(self.model) if config.grad_cache else None
        if mesh.is_first and (remark := split_steps(task, train.examples, self.steps, config)):
            warnings.warn(remark, Remark, 3)
        self._batches = Batches(task, mesh, workers)
        self._made = self._batches.of(map(self._micro_batches, self.steps[self.state.step :]))

    def __enter__(self) -> Training:
        return self

    def __exit__(self, *_: object) -> None:
        self._batches.close()

    @property
    def evaluations(self) -> list[Evaluation]:
        """All evaluations so far."""
        return self.state.evaluations

    @property
    def pace(self) -> float:
        """The tokens a second of all steps so far."""
        return self.state.tokens / self.state.seconds

    @property
    def is_out_of_patience(self) -> bool:
        """Whether the last evaluations brought no improvement, as many as `early_stopping_patience` says."""
        return is_out_of_patience(self.task, self.evaluations, self.config.early_stopping_patience)

    def remaining(self) -> list[tuple[int, Step]]:
        """Return the numbers and the plans of the steps to do: none if training had ended before it was resumed."""
        return [] if self.is_out_of_patience else list(enumerate(self.steps))[self.state.step :]

    def step(self, number: int, step: Step) -> StepReport:
        """Do the next step.  Raises TrainingStopped, in all processes, after too many steps that are not finite."""
        began, state = time.perf_counter(), self.state
        self._mesh.watch.at(step=number, doing="reading sounds and making batches")
        packs = next(self._made)
        assert all(epoch == step.epoch for packed in packs for epoch in packed.samples[:, 0])
        lr = self.config.lr.at(number, len(self.steps))
        loss, before = self._loss_of(packs)
        report = self._trainer.step(number, [("task", packed) for packed in packs], loss, lr, before)
        state.step = number + 1
        state.failed += report.failed
        if not report.skipped and report.losses:  # rows may have no targets, such as words to tag
            state.losses.append(report.losses["task"])
        state.tokens += sum(packed.layout.tokens for packed in packs)
        state.seconds += time.perf_counter() - began
        return report

    def _micro_batches(self, step: Step) -> list[Samples]:
        replicas = self._mesh.layout.replicas
        if isinstance(self.task, ComparesRows) and self.task.compares_rows:
            replicas = 1  # the loss is that of one process
        budget, passes = self.config.micro_batch_tokens, 2 if self.config.r_drop else 1
        return list(micro_batches(self._train.examples, self._sizes, step, budget, replicas, passes, self._seed))

    def _loss_of(
        self, packs: Sequence[Packed]
    ) -> tuple[Callable[[str, Packed], Loss], Callable[[Sequence[MicroBatch]], None] | None]:
        """Return the loss of one micro-batch of a step, and what is done before their passes."""
        cache = self._cache
        if cache is None or len(packs) < 2:
            return (lambda _, packed: self.model.loss(packed)), None
        names = [name for packed in packs for name in packed.samples.tolist()]
        whole = pack([self._train.examples[row].samples[k] for _, row, k in names])
        return (lambda _, packed: cache.loss(packed)), (lambda micros: cache.fill(micros, whole))

    def averages(self) -> dict[str, np.ndarray]:
        """Return the moving averages of the weights, whole in the first process; none without `ema`."""
        self._trainer.gather_weights(self.full_model)
        return self._trainer.averages()

    def evaluate(self, step: Step) -> str:
        """Score the dev split after a step, and keep the weights if they are the best so far.

        Returns what is wrong if that makes no sense any more; "" otherwise.
        """
        with holding(self.full_model, self.averages(), self.full_model.adapter):
            return self._evaluate(step)

    def _evaluate(self, step: Step) -> str:
        state = self.state
        scores = on_rank0(self._mesh, "scoring", self._score_dev)
        if scores is None:
            return f"step {state.step}: the model's outputs or weights are not finite."
        if self._trainer.bad_steps and not state.losses:
            return f"step {state.step}: the loss or gradient of every step was not finite."
        loss = float(np.mean(state.losses)) if state.losses else math.nan
        self.evaluations.append(Evaluation(state.step, step.epochs, scores, loss, state.seconds))
        state.losses.clear()
        if evaluations_since_best(self.task, self.evaluations) == 0:
            state.best = arrays(self.full_model) if self._mesh.is_first else {}
        return ""

    def _score_dev(self) -> dict[str, float] | None:
        """Return the scores on the dev split, or None if the model's outputs or weights are not finite."""
        try:
            scores = score_answers(self.task, self._dev.rows, self.full_model.answers(self._dev.examples))
            check_finite(arrays(self.full_model))  # also of tokens that dev lacks
            return scores
        except NotFinite:
            return None

    def save_if_due(self, step: Step) -> None:
        """Write a checkpoint after a step if it is time for one in any process.

        Raises TrainingFailed if the weights are not finite.
        """
        checkpoints = self._checkpoints
        if checkpoints is None or not any_rank(self._mesh, checkpoints.is_due()):
            return
        if not step.scored:  # otherwise the whole model is up to date
            self._trainer.gather_weights(self.full_model)
        trainer_state = self._trainer.state()
        try:
            on_rank0(self._mesh, "saving", partial(checkpoints.save, self.state, self.full_model, trainer_state))
        except NotFinite as error:
            raise TrainingFailed(f"after step {self.state.step}: {error}. {self._causes()}") from None
        checkpoints.saved()

    def give_up(self, problem: str) -> None:
        """Warn that training ends early.  Raises TrainingFailed if no evaluation has left a model that can be kept."""
        if not self.evaluations:
            raise TrainingFailed(f"{problem} {self._causes()}")
        if self._mesh.is_first:
            ended = "Training ended there, and the best model before it is kept."
            warnings.warn(f"{problem} {ended} {self._causes()}", Remark, 3)

    def best_model(self) -> TrainingModel:
        """Return the model as of its best evaluation, whole in the first process.

        Raises TrainingFailed if most steps were skipped.
        """
        state = self.state
        if 2 * state.failed > max(state.step, 1):
            raise TrainingFailed(
                f"{state.failed} of {state.step} steps were skipped, because their loss or gradient was not finite. "
                f"{self._causes()}"
            )
        if self._mesh.is_first:
            set_weights(self.full_model, state.best, "the best evaluation")
        return self.full_model

    def _causes(self) -> str:
        """Say what usually makes such a training diverge."""
        lr = self.config.lr
        # A single step, such as that of `ernie check`, has no warm-up.
        warmup = f", a warm-up that is too short (train.lr.warmup is {lr.warmup:g})" if len(self.steps) > 1 else ""
        return (
            f"The usual causes are a learning rate that is too high (train.lr.peak is {lr.peak:g}){warmup} and an "
            "encoder with damaged weights."
        )


def _build_model(
    ernie: ErnieModel,
    task: FinetuneTask,
    config: TrainConfig,
    seed: int,
    replicas: int,
    head: Path | None,
    teacher: Teacher | None,
) -> TrainingModel:
    paddle.seed(seeded_rng.key(seed, "head") % 2**31)
    ernie.masked_head = None  # fine-tuning changes the encoder, so its pretraining head no longer fits
    model = TrainingModel(ernie, task, config.task_id)
    if isinstance(task, PartialTraining):
        task.initialize(ernie, model.head)
    if head is not None:
        set_weights(model.head, read_head(head), str(head))
    if config.dropout is not None:
        set_dropout(model, config.dropout)
    model.r_drop = config.r_drop
    model.projection = None if teacher is None else teacher.projection(ernie)
    compares_itself = isinstance(task, ComparesRows) and task.compares_passes
    key = "train.r_drop" if config.r_drop else "task.simcse" if compares_itself else ""
    if key and not ernie.config.dropout and not config.dropout:
        warnings.warn(
            f"{key} compares passes that differ by dropout, and the encoder has none; give train.dropout: 0.1",
            Remark,
            4,
        )
    freeze(model, config.freeze)
    if config.adapt is not None:
        model.adapter = Adapter(ernie, config.adapt, seed)
    if replicas > 1 and any(isinstance(layer, nn.BatchNorm1D) for layer in model.sublayers()):
        raise UserError(
            "this model normalizes over all vectors of a batch, and processes that split a batch would each see only "
            "part of it; train it on one process, or with another encoder"
        )
    return model


def layer_factors(model: TaskModel, decay: float) -> dict[str, float]:
    """Return each parameter's learning-rate factor: `decay` to the power of the number of layers above it.

    Pooler and head count as the topmost layer.
    """
    layers = model.ernie.config.layers
    factors = {}
    for name, _ in model.named_parameters():
        above = 0
        if name.startswith("ernie.embedding."):
            above = layers + 1
        elif name.startswith(("ernie.encoder.layers.", "adapter.layers.")):
            above = layers - int(name.partition(".layers.")[2].split(".")[0])
        factors[name] = decay**above
    return factors


def freeze(model: TaskModel, what: str | int) -> None:
    """Keep parts of the encoder as they are: see TrainConfig.  Raises UserError if there are not so many layers."""
    layers = model.ernie.config.layers
    if isinstance(what, int) and what > layers:
        raise UserError(f"train.freeze: expected at most the encoder's {plural(layers, 'layer')}, found {what}")
    depth = {"none": -1, "embeddings": 0, "encoder": layers}[what] if isinstance(what, str) else what
    for name, parameter in model.named_parameters():
        is_embedding, is_layer = name.startswith("ernie.embedding."), name.startswith("ernie.encoder.layers.")
        if (is_embedding and depth >= 0) or (is_layer and int(name.split(".")[3]) < depth):
            parameter.stop_gradient = True


def set_dropout(model: TaskModel, dropout: float) -> None:
    """Set the probability of dropout in all layers of a model."""
    for layer in model.sublayers():
        if isinstance(layer, TextEmbedding | EncoderLayer | DecoderLayer | TranslationHead | SpeechFrontend):
            layer.dropout = dropout
        if isinstance(layer, EncoderLayer | DecoderLayer):
            layer.attention_dropout = dropout
        if isinstance(layer, nn.Dropout):  # in the head
            layer.p = dropout

"""The fine-tuning loop: train an encoder with a new head on one downstream task and return the best checkpoint."""

from __future__ import annotations

import copy
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import paddle
from paddle import nn

from ernie.data import seeded_rng
from ernie.data.batch import Packed, pack, plan, plan_by_length
from ernie.errors import NotFinite, Remark, TrainingFailed, UserError
from ernie.formatting import plural
from ernie.metrics import LOWER_IS_BETTER
from ernie.model.decoder import DecoderLayer
from ernie.model.embeddings import TextEmbedding
from ernie.model.encoder import EncoderLayer
from ernie.model.ernie import ErnieModel
from ernie.model.speech import SpeechFrontend
from ernie.model.translation import TranslationHead
from ernie.model.weights import arrays, check_finite, set_weights
from ernie.parallel.collectives import any_rank, on_rank0
from ernie.parallel.mesh import Mesh
from ernie.train.loss_scale import LossScale
from ernie.train.trainer import StepReport, Trainer, TrainingStopped
from finetune.config import TrainConfig
from finetune.prepare import Prepared
from finetune.train.model import TrainingModel
from finetune.train.trial_checkpoint import (
    Evaluation,
    TrialCheckpoints,
    TrialState,
    read_trial_state,
    set_model,
    set_trainer,
)
from inference.task_model import TaskModel
from tasks.downstream.base import Example, FinetuneTask
from tasks.downstream.hooks import OwnBatches, PartialTraining
from tasks.downstream.saved import read_head
from tasks.downstream.scoring import score_answers

_MOST_VISITS = 4_000_000_000  # rows times epochs: their numbers are planned before training
_ERROR_RATES = ("wer", "cer")

Progress = Callable[[int, StepReport, float], None]  # step number, step report, tokens per second so far


def finetune(
    ernie: ErnieModel,
    task: FinetuneTask,
    train: Prepared,
    dev: Prepared,
    config: TrainConfig,
    seed: int = 0,
    progress: Progress | None = None,
    evaluated: Callable[[Evaluation], None] | None = None,
    mesh: Mesh | None = None,
    checkpoints: TrialCheckpoints | None = None,
    head: Path | None = None,
) -> tuple[TaskModel, list[Evaluation]]:
    """Train encoder and head on `train`; return them as of their best evaluation on `dev`, with all evaluations.

    The seed determines row order, dropout and the initial weights of the head, unless they are those of the file
    `head`.  The processes of `mesh` train together; the returned model is that of rank 0.  Training
    resumes from the latest of the `checkpoints` and writes new ones.  When the loss, gradients or outputs are no longer
    finite, the best model so far is returned, with a warning (a Remark); raises TrainingFailed if there is none yet, or
    if most steps were skipped.
    """
    mesh = mesh or Mesh()
    checkpoint = None if checkpoints is None else checkpoints.found
    state = TrialState() if checkpoint is None else read_trial_state(checkpoint)
    model = full_model = _build_model(ernie, task, config, seed, mesh.layout.replicas, head)
    if checkpoint is not None:
        set_model(model, checkpoint)
    if mesh.splits_model and mesh.is_first:
        full_model = copy.deepcopy(model)
    factors = layer_factors(model, config.layer_decay)
    scale = LossScale() if config.precision == "fp16" else None
    trainer = Trainer(
        model,
        config.adam,
        clip=config.clip,
        max_bad_steps=20,
        seed=seed,
        lr_factors=factors,
        separate_clip_groups=[f"head.{part}." for part in task.separate_clip_groups]
        if isinstance(task, PartialTraining)
        else [],
        loss_scale=scale,
        mesh=mesh,
    )
    if checkpoint is not None:
        set_trainer(trainer, checkpoint)
    steps, evaluations = planned_steps(train.examples, config, seed), state.evaluations
    sizes = [task.computed_tokens(e) if isinstance(task, OwnBatches) else e.tokens for e in train.examples]
    if mesh.is_first and (remark := config.lr.remark(len(steps))):
        warnings.warn(remark, Remark, 2)
    finished = _is_out_of_patience(task, evaluations, config.early_stopping_patience)  # when resumed after its end
    for number, step in [] if finished else list(enumerate(steps))[state.step :]:
        began = time.perf_counter()
        packs = micro_batches(train.examples, sizes, step, config.micro_batch_tokens, mesh.layout.replicas)
        batches = [("task", packed) for packed in packs]
        rate = config.lr.at(number, len(steps))
        try:
            report = trainer.step(number, batches, lambda _, packed: model.loss(packed), rate)
        except TrainingStopped as error:  # raised in all processes
            _stop_early(str(error), config, len(steps), evaluations, mesh)
            break
        state.step = number + 1
        state.failed += report.failed
        if not report.skipped and report.losses:  # rows may have no targets, such as words to tag
            state.losses.append(report.losses["task"])
        state.tokens += sum(packed.layout.tokens for _, packed in batches)
        state.seconds += time.perf_counter() - began
        if progress is not None:
            progress(number, report, state.tokens / state.seconds)
        if step.scored:
            trainer.gather_weights(full_model)
            scores = on_rank0(mesh, "scoring", lambda: _score_dev(full_model, task, dev))
            if scores is None or (trainer.bad_steps and not state.losses):
                problem = (
                    "the model's outputs or weights are" if scores is None else "the loss or gradient of every step was"
                )
                _stop_early(f"step {state.step}: {problem} not finite.", config, len(steps), evaluations, mesh)
                break
            loss = float(np.mean(state.losses)) if state.losses else math.nan
            evaluations.append(Evaluation(state.step, step.epochs, scores, loss, state.seconds))
            state.losses.clear()
            if evaluated is not None:
                evaluated(evaluations[-1])
            if _evaluations_since_best(task, evaluations) == 0:
                state.best = arrays(full_model) if mesh.is_first else {}
        if checkpoints is not None and any_rank(mesh, checkpoints.is_due()):
            if not step.scored:
                trainer.gather_weights(full_model)
            trainer_state = trainer.state()
            try:
                on_rank0(mesh, "saving", partial(checkpoints.save, state, full_model, trainer_state))
            except NotFinite as error:
                raise TrainingFailed(f"after step {state.step}: {error}. {_causes(config, len(steps))}") from None
            checkpoints.saved()
        if step.scored and _is_out_of_patience(task, evaluations, config.early_stopping_patience):
            break
    if 2 * state.failed > max(state.step, 1):
        raise TrainingFailed(
            f"{state.failed} of {state.step} steps were skipped, because their loss or gradient was not finite. "
            f"{_causes(config, len(steps))}"
        )
    if mesh.is_first:
        set_weights(full_model, state.best, "the best evaluation")
    return full_model, evaluations


def _score_dev(model: TaskModel, task: FinetuneTask, dev: Prepared) -> dict[str, float] | None:
    """Return the scores on the dev split, or None if the model's outputs or weights are not finite."""
    try:
        scores = score_answers(task, dev.rows, model.answers(dev.examples))
        check_finite(arrays(model))  # also of tokens that dev lacks
        return scores
    except NotFinite:
        return None


def _stop_early(problem: str, config: TrainConfig, steps: int, evaluations: Sequence[Evaluation], mesh: Mesh) -> None:
    """Warn that training ends early.  Raises TrainingFailed when there was no evaluation whose model could be kept."""
    causes = _causes(config, steps)
    if not evaluations:
        raise TrainingFailed(f"{problem} {causes}")
    if mesh.is_first:
        warnings.warn(f"{problem} Training ended there, and the best model before it is kept. {causes}", Remark, 2)


def _causes(config: TrainConfig, steps: int) -> str:
    """Say what usually makes a training of so many steps diverge."""
    lr = config.lr
    # A single step, such as that of `ernie check`, has no warm-up.
    warmup = f", a warm-up that is too short (train.lr.warmup is {lr.warmup:g})" if steps > 1 else ""
    return (
        f"The usual causes are a rate that is too high (train.lr.peak is {lr.peak:g}){warmup} and an encoder with "
        "damaged weights."
    )


def _build_model(
    ernie: ErnieModel, task: FinetuneTask, config: TrainConfig, seed: int, replicas: int, head: Path | None
) -> TrainingModel:
    paddle.seed(seeded_rng.key(seed, "head") % 2**31)
    ernie.masked_head = None  # fine-tuning changes the encoder, so its pretraining head no longer fits
    model = TrainingModel(ernie, task, config.task_id)
    if isinstance(task, PartialTraining):
        task.initialize(ernie, model.head)
    if head is not None:
        set_weights(model.head, read_head(head), str(head))
    if config.dropout is not None:
        _set_dropout(model, config.dropout)
    if replicas > 1 and any(isinstance(layer, nn.BatchNorm1D) for layer in model.sublayers()):
        raise UserError(
            "this model normalizes over all vectors of a batch, and processes that split a batch would each see only "
            "part of it; train it on one process, or with another encoder"
        )
    return model


def best_of(task: FinetuneTask, evaluations: Sequence[Evaluation]) -> int:
    """Return the index of the best evaluation by the task's deciding score; ties go to the first.

    At an error rate of 1, when no word is right, they go to the last: recognizers predict nothing for some time.
    """
    sign = -1 if task.scored_by[0] in LOWER_IS_BETTER else 1
    first = max(range(len(evaluations)), key=lambda i: (sign * evaluations[i].headline, -i))
    best = evaluations[first].headline
    if not _is_unlearned(task, best):
        return first
    return max(i for i, evaluation in enumerate(evaluations) if evaluation.headline == best)


def _is_unlearned(task: FinetuneTask, score: float) -> bool:
    return task.scored_by[0] in _ERROR_RATES and score >= 1


def unlearned(task: FinetuneTask, evaluations: Sequence[Evaluation]) -> str | None:
    """Return a remark if no word was right when training ended, else None."""
    if not evaluations or not _is_unlearned(task, evaluations[-1].headline):
        return None
    name, score = task.scored_by[0], evaluations[-1].headline
    why = "More is written than is said" if score > 1 else "Recognizers begin with empty transcripts for some time"
    return (
        f"the last {name} on dev is {score:.2f}: nothing is recognized yet. {why}; train longer (train.epochs), or "
        "with a higher rate (train.lr.peak)"
    )


def _evaluations_since_best(task: FinetuneTask, evaluations: Sequence[Evaluation]) -> int:
    return len(evaluations) - 1 - best_of(task, evaluations)


def _is_out_of_patience(task: FinetuneTask, evaluations: Sequence[Evaluation], patience: int) -> bool:
    """Return whether the last `patience` evaluations brought no improvement."""
    return bool(patience and evaluations) and _evaluations_since_best(task, evaluations) >= patience


class Step(NamedTuple):
    """One step: its row indices, its epoch, the epochs completed after it, and whether the dev split is scored then."""

    rows: np.ndarray
    epoch: int
    epochs: float
    scored: bool


def planned_steps(examples: Sequence[Example], config: TrainConfig, seed: int) -> list[Step]:
    """Return all steps of a fine-tuning: every row once per epoch, in an order determined by (seed, epoch)."""
    if (visits := config.epochs * len(examples)) > _MOST_VISITS:
        raise UserError(
            f"train.epochs: {config.epochs:,} of {plural(len(examples), 'row')} are {visits:,} rows to plan; expected "
            f"at most {_MOST_VISITS:,}"
        )
    steps = []
    for epoch in range(config.epochs):
        rows = _epoch_batches(examples, config, seed, epoch)
        # Evaluations are evenly spaced; the last step of training always has one.
        due = {max(1, round(len(rows) * k / config.evaluations)) for k in range(1, config.evaluations + 1)}
        if epoch + 1 == config.epochs:
            due.add(len(rows))
        steps += [Step(chosen, epoch, epoch + n / len(rows), n in due) for n, chosen in enumerate(rows, 1)]
    return steps


def _epoch_batches(examples: Sequence[Example], config: TrainConfig, seed: int, epoch: int) -> list[np.ndarray]:
    rng = seeded_rng.generator(seed, "finetune", epoch)
    lengths = [example.tokens for example in examples]
    sorted_now = config.shortest_first and epoch == 0
    if config.batch_tokens and sorted_now:
        return plan_by_length(lengths, config.batch_tokens)[::-1]
    if config.batch_tokens:
        return plan(np.minimum(lengths, config.batch_tokens).tolist(), config.batch_tokens, rng)
    shuffled = np.argsort(lengths, kind="stable") if sorted_now else rng.permutation(len(examples))
    return [shuffled[first : first + config.batch] for first in range(0, len(shuffled), config.batch)]


def micro_batches(
    examples: Sequence[Example], sizes: Sequence[int], step: Step, budget: int, replicas: int = 1
) -> Iterator[Packed]:
    """Yield the rows of a step as packed micro-batches of at most `budget` tokens, grouped by length.

    `sizes` are the `OwnBatches.computed_tokens` of the examples.  There is at least one micro-batch for each of the
    `replicas` that share them, if there are enough rows.
    """
    lengths = [sizes[i] for i in step.rows]
    budget = max(1, min(budget, sum(lengths) // replicas))
    for chosen in plan_by_length(lengths, budget):
        rows = step.rows[chosen].tolist()
        samples = [sample for i in rows for sample in examples[i].samples]
        names = [(step.epoch, i, k) for i in rows for k in range(len(examples[i].samples))]
        yield pack(samples, np.array(names))


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
        elif name.startswith("ernie.encoder.layers."):
            above = layers - int(name.split(".")[3])
        factors[name] = decay**above
    return factors


def _set_dropout(model: TaskModel, dropout: float) -> None:
    for layer in model.sublayers():
        if isinstance(layer, TextEmbedding | EncoderLayer | DecoderLayer | TranslationHead | SpeechFrontend):
            layer.dropout = dropout
        if isinstance(layer, EncoderLayer | DecoderLayer):
            layer.attention_dropout = dropout
        if isinstance(layer, nn.Dropout):  # in the head
            layer.p = dropout

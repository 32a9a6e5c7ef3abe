"""Fine-tuning: an encoder with a fresh head on one downstream task, from the first step to the best checkpoint."""

from __future__ import annotations

import copy
import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import paddle
from paddle import nn

from ernie.data import order
from ernie.data.batch import Packed, pack, plan, plan_by_length
from ernie.errors import BrokeDown, NotFinite, Remark, UserError
from ernie.metrics import LOWER_IS_BETTER
from ernie.model.decoder import DecoderLayer
from ernie.model.embeddings import TextEmbedding
from ernie.model.encoder import EncoderLayer
from ernie.model.ernie import ErnieModel
from ernie.model.speech import SpeechFrontend
from ernie.model.translation import TranslationHead
from ernie.model.weights import arrays, set_weights
from ernie.parallel.world import World
from ernie.train.loss_scale import LossScale
from ernie.train.trainer import StepReport, Trainer, TrainingStopped
from finetune.checkpoint import Course, Evaluation, TrialCheckpoints, read_course, set_model, set_trainer
from finetune.config import TrainConfig
from finetune.model import FinetunedModel
from finetune.prepare import Prepared
from tasks.downstream.base import Example, FinetuneTask

Progress = Callable[[int, StepReport, float], None]  # the number of the step, what it did, tokens a second so far


def finetune(
    ernie: ErnieModel,
    task: FinetuneTask,
    train: Prepared,
    dev: Prepared,
    config: TrainConfig,
    seed: int = 0,
    progress: Progress | None = None,
    evaluated: Callable[[Evaluation], None] | None = None,
    world: World | None = None,
    checkpoints: TrialCheckpoints | None = None,
) -> tuple[FinetunedModel, list[Evaluation]]:
    """Train encoder and head on `train`; returns them as they were when they did best on `dev`, with all evaluations.

    Order, dropout and the head's first weights follow from the seed.  `world` are the processes that train together;
    the model that is returned is the first one's.  It goes on from the last of the `checkpoints`, and writes some.
    Where loss, gradients or outputs are finite no more, what did best until then is returned, with a remark; raises
    BrokeDown where there is nothing yet.
    """
    world = world or World()
    checkpoint = None if checkpoints is None else checkpoints.found
    course = Course() if checkpoint is None else read_course(checkpoint)
    model = whole = _begin(ernie, task, config, seed, world.layout.replicas)
    if checkpoint is not None:
        set_model(model, checkpoint)
    if world.splits and world.is_first:
        whole = copy.deepcopy(model)
    world.split(model)
    factors = layer_factors(model, config.layer_decay)
    scale = LossScale() if config.precision == "fp16" else None
    trainer = Trainer(
        model,
        config.adam,
        clip=config.clip,
        patience=20,
        seed=seed,
        rate_factors=factors,
        clipped_apart=[f"head.{part}." for part in task.clipped_apart],
        loss_scale=scale,
        world=world,
    )
    if checkpoint is not None:
        set_trainer(trainer, checkpoint)
    steps, evaluations = planned_steps(train.examples, config, seed), course.evaluations
    sizes = [task.computed(example) for example in train.examples]
    if world.is_first and (odd := config.rate.remark(len(steps))):
        warnings.warn(odd, Remark, 2)
    over = _is_over(task, evaluations, config.patience)  # also where it was saved when that was found
    for number, step in [] if over else list(enumerate(steps))[course.step :]:
        began = time.perf_counter()
        packs = micro_batches(train.examples, sizes, step, config.micro_tokens, world.layout.replicas)
        batches = [("task", packed) for packed in packs]
        rate = config.rate.at(number, len(steps))
        try:
            report = trainer.step(number, batches, lambda _, packed: model.loss(packed), rate)
        except TrainingStopped as error:  # in all processes alike
            _broke_down(str(error), config, evaluations, world)
            break
        course.step = number + 1
        if not report.skipped and report.losses:  # rows may have nothing to learn, such as no words to tag
            course.losses.append(report.losses["task"])
        course.tokens += sum(packed.layout.tokens for _, packed in batches)
        course.seconds += time.perf_counter() - began
        if progress is not None:
            progress(number, report, course.tokens / course.seconds)
        if step.scored:
            if world.splits:
                world.gather(whole, model)
            scores = world.by_first("scoring", lambda: _scored(whole, task, dev))
            if scores is None or (trainer.bad_steps and not course.losses):
                what = "the model's outputs are" if scores is None else "the loss or gradient of every step was"
                _broke_down(f"step {course.step}: {what} not finite.", config, evaluations, world)
                break
            loss = float(np.mean(course.losses)) if course.losses else math.nan
            evaluations.append(Evaluation(course.step, step.epochs, scores, loss, course.seconds))
            course.losses.clear()
            if evaluated is not None:
                evaluated(evaluations[-1])
            if _since_best(task, evaluations) == 0:
                course.best = arrays(whole) if world.is_first else {}
        if checkpoints is not None and world.any(checkpoints.is_due()):
            if world.splits and not step.scored:
                world.gather(whole, model)
            optimizer = trainer.optimizer.state()
            world.by_first("saving", partial(checkpoints.save, course, whole, optimizer, trainer))
            checkpoints.saved()
        if step.scored and _is_over(task, evaluations, config.patience):
            break
    if world.is_first:
        set_weights(whole, course.best, "the best evaluation")
    return whole, evaluations


def _scored(model: FinetunedModel, task: FinetuneTask, dev: Prepared) -> dict[str, float] | None:
    """The scores on the dev split, None where what the model computes is not finite."""
    try:
        return task.scores(dev.rows, model.answers(dev.examples))
    except NotFinite:
        return None


def _broke_down(what: str, config: TrainConfig, evaluations: Sequence[Evaluation], world: World) -> None:
    """Say that training ends before its time.  Raises BrokeDown where no evaluation has a model to be kept."""
    causes = (
        f"The usual causes are a rate that is too high (train.rate.peak is {config.rate.peak:g}), a warm-up that is "
        f"too short (train.rate.warmup is {config.rate.warmup:g}) and an encoder with damaged weights."
    )
    if not evaluations:
        raise BrokeDown(f"{what} {causes}")
    if world.is_first:
        warnings.warn(f"{what} Training ended there, and the best model before it is kept. {causes}", Remark, 2)


def _begin(ernie: ErnieModel, task: FinetuneTask, config: TrainConfig, seed: int, replicas: int) -> FinetunedModel:
    paddle.seed(order.key(seed, "head") % 2**31)
    ernie.masked_head = None  # it would no longer fit the encoder
    model = FinetunedModel(ernie, task, config.task_id)
    task.begin(ernie, model.head)
    if config.dropout is not None:
        _set_dropout(model, config.dropout)
    if replicas > 1 and any(isinstance(layer, nn.BatchNorm1D) for layer in model.sublayers()):
        raise UserError(
            "this model normalizes over all vectors of a batch, and processes that share batches out would each see a "
            "part of them; train it on one process, or with another encoder"
        )
    return model


def best_of(task: FinetuneTask, evaluations: Sequence[Evaluation]) -> int:
    """Which evaluation is the best by the task's deciding score; of equals the first."""
    sign = -1 if task.scored_by[0] in LOWER_IS_BETTER else 1
    return max(range(len(evaluations)), key=lambda i: (sign * evaluations[i].headline, -i))


def _since_best(task: FinetuneTask, evaluations: Sequence[Evaluation]) -> int:
    return len(evaluations) - 1 - best_of(task, evaluations)


def _is_over(task: FinetuneTask, evaluations: Sequence[Evaluation], patience: int) -> bool:
    """Whether so many evaluations in a row were no better than the best."""
    return bool(patience and evaluations) and _since_best(task, evaluations) >= patience


class Step(NamedTuple):
    """One step: its rows, their epoch, how many epochs are done after it, and whether the dev split is scored then."""

    rows: np.ndarray
    epoch: int
    epochs: float
    scored: bool


def planned_steps(examples: Sequence[Example], config: TrainConfig, seed: int) -> list[Step]:
    """All steps of a fine-tuning: every row once an epoch, in an order that (seed, epoch) decides."""
    steps = []
    for epoch in range(config.epochs):
        rows = _rows_of_epoch(examples, config, seed, epoch)
        # Scored after evenly spread steps, the last one always.
        due = {max(1, round(len(rows) * k / config.evaluations)) for k in range(1, config.evaluations + 1)}
        if epoch + 1 == config.epochs:
            due.add(len(rows))
        steps += [Step(chosen, epoch, epoch + n / len(rows), n in due) for n, chosen in enumerate(rows, 1)]
    return steps


def _rows_of_epoch(examples: Sequence[Example], config: TrainConfig, seed: int, epoch: int) -> list[np.ndarray]:
    rng = order.generator(seed, "finetune", epoch)
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
    """The rows of a step in packed batches of at most `budget` tokens, those of like length together.

    `sizes` are how many tokens are computed of each example (see `FinetuneTask.computed`).  There is one batch at least
    for each of the `replicas` that share them out, as far as there are rows.
    """
    lengths = [sizes[i] for i in step.rows]
    budget = max(1, min(budget, sum(lengths) // replicas))
    for chosen in plan_by_length(lengths, budget):
        rows = step.rows[chosen].tolist()
        samples = [sample for i in rows for sample in examples[i].samples]
        names = [(step.epoch, i, k) for i in rows for k in range(len(examples[i].samples))]
        yield pack(samples, np.array(names))


def layer_factors(model: FinetunedModel, decay: float) -> dict[str, float]:
    """What each parameter's rate is multiplied by: decay to the power of the layers above it, the head's aside."""
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


def _set_dropout(model: FinetunedModel, dropout: float) -> None:
    for layer in model.sublayers():
        if isinstance(layer, TextEmbedding | EncoderLayer | DecoderLayer | TranslationHead | SpeechFrontend):
            layer.dropout = dropout
        if isinstance(layer, EncoderLayer | DecoderLayer):
            layer.attention_dropout = dropout
        if isinstance(layer, nn.Dropout):  # of the head
            layer.p = dropout

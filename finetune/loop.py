"""Fine-tuning: an encoder with a fresh head on one downstream task, from the first step to the best checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import paddle
from paddle import nn

from ernie.data import order
from ernie.data.batch import Packed, pack, plan, plan_by_length
from ernie.errors import UserError
from ernie.metrics import LOWER_IS_BETTER
from ernie.model.encoder import EncoderLayer
from ernie.model.ernie import ErnieModel
from ernie.model.weights import arrays, set_weights
from ernie.train.trainer import Trainer
from finetune.config import TrainConfig
from finetune.model import FinetunedModel
from finetune.prepare import Prepared
from tasks.downstream.base import Example, FinetuneTask


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


Progress = Callable[[int, int, dict[str, str]], None]  # the step, how many there are, a few figures


def finetune(
    ernie: ErnieModel,
    task: FinetuneTask,
    train: Prepared,
    dev: Prepared,
    config: TrainConfig,
    seed: int = 0,
    progress: Progress | None = None,
    evaluated: Callable[[Evaluation], None] | None = None,
) -> tuple[FinetunedModel, list[Evaluation]]:
    """Train encoder and head on `train`; returns them as they were when they did best on `dev`, with all evaluations.

    Order, dropout and the head's first weights follow from the seed.
    """
    paddle.seed(order.key(seed, "head") % 2**31)
    ernie.masked_head = None  # it would no longer fit the encoder
    if config.dropout is not None:
        _set_dropout(ernie, config.dropout)
    if config.task_id >= max(1, ernie.config.task_vocab_size):
        raise UserError(
            f"train.task_id: {config.task_id}: the model has {ernie.config.task_vocab_size} task embeddings"
        )
    model = FinetunedModel(ernie, task, config.task_id)
    factors = layer_factors(model, config.layer_decay)
    trainer = Trainer(model, config.adam, clip=config.clip, patience=20, seed=seed, rate_factors=factors)
    epochs = [steps_of_epoch(train.examples, config, seed, epoch) for epoch in range(config.epochs)]
    total = sum(map(len, epochs))
    evaluations: list[Evaluation] = []
    best: dict[str, np.ndarray] = {}
    losses: list[float] = []
    tokens, seconds, step = 0, 0.0, 0
    for epoch, chosen in enumerate(epochs):
        due = evaluation_steps(len(chosen), config.evaluations)
        for place, rows in enumerate(chosen, 1):
            began = time.perf_counter()
            batches = [("task", packed) for packed in micro_batches(train.examples, rows, config.micro_tokens, epoch)]
            report = trainer.step(step, batches, lambda _, packed: model.loss(packed), config.rate.at(step, total))
            step += 1
            losses.append(report.losses["task"])
            tokens += sum(packed.layout.tokens for _, packed in batches)
            seconds += time.perf_counter() - began
            if progress is not None:
                progress(step - 1, total, {"loss": f"{losses[-1]:.4f}", "tokens/s": f"{tokens / seconds:,.0f}"})
            if place not in due:
                continue
            scores = task.scores(dev.rows, model.answers(dev.examples))
            evaluations.append(Evaluation(step, epoch + place / len(chosen), scores, float(np.mean(losses)), seconds))
            losses.clear()
            if evaluated is not None:
                evaluated(evaluations[-1])
            if best_of(task, evaluations) == len(evaluations) - 1:
                best = arrays(model)
            elif config.patience and len(evaluations) - 1 - best_of(task, evaluations) >= config.patience:
                set_weights(model, best, "the best evaluation")
                return model, evaluations
    set_weights(model, best, "the best evaluation")
    return model, evaluations


def best_of(task: FinetuneTask, evaluations: Sequence[Evaluation]) -> int:
    """Which evaluation is the best by the task's deciding score; of equals the first."""
    sign = -1 if task.scored_by[0] in LOWER_IS_BETTER else 1
    return max(range(len(evaluations)), key=lambda i: (sign * evaluations[i].headline, -i))


def steps_of_epoch(examples: Sequence[Example], config: TrainConfig, seed: int, epoch: int) -> list[np.ndarray]:
    """Which rows each step of an epoch takes: every row in exactly one, in an order that (seed, epoch) decides."""
    rng = order.generator(seed, "finetune", epoch)
    if config.batch_tokens:
        return plan([min(example.tokens, config.batch_tokens) for example in examples], config.batch_tokens, rng)
    shuffled = rng.permutation(len(examples))
    return [shuffled[first : first + config.batch] for first in range(0, len(shuffled), config.batch)]


def micro_batches(examples: Sequence[Example], rows: np.ndarray, budget: int, epoch: int) -> Iterator[Packed]:
    """The rows of a step in packed batches of at most `budget` tokens, those of like length together."""
    for chosen in plan_by_length([examples[i].tokens for i in rows], budget):
        yield _packed(examples, rows[chosen].tolist(), epoch)


def _packed(examples: Sequence[Example], rows: list[int], epoch: int) -> Packed:
    samples = [sample for i in rows for sample in examples[i].samples]
    names = [(epoch, i, k) for i in rows for k in range(len(examples[i].samples))]
    return pack(samples, np.array(names))


def evaluation_steps(steps: int, evaluations: int) -> set[int]:
    """After which steps of an epoch (from 1) the dev split is scored: evenly spread, the last one always."""
    return {max(1, round(steps * k / evaluations)) for k in range(1, evaluations + 1)}


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


def _set_dropout(ernie: ErnieModel, dropout: float) -> None:
    for layer in ernie.sublayers():
        if isinstance(layer, nn.Dropout):
            layer.p = dropout
        elif isinstance(layer, EncoderLayer):
            layer.attention_dropout = dropout

"""Fine-tuning: an encoder with a fresh head on one downstream task."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import paddle
from paddle import nn

from ernie.data import order
from ernie.data.batch import Packed, pack, plan
from ernie.data.document import Sample
from ernie.metrics import Score
from ernie.model.ernie import ErnieModel
from ernie.model.losses import Loss
from ernie.model.weights import initialize
from ernie.text.tokenizer import Tokenizer
from ernie.train.evaluate import evaluate
from ernie.train.settings import AdamConfig, RateConfig
from ernie.train.trainer import Trainer
from tasks.downstream.base import FinetuneTask, Row


@dataclass(frozen=True)
class FinetuneSettings:
    """How long and how fast: passes over the data, tokens of a batch, learning rate, optimizer, seed."""

    epochs: int = 3
    tokens: int = 2048
    rate: RateConfig = field(default_factory=lambda: RateConfig(peak=5e-5))
    adam: AdamConfig = field(default_factory=lambda: AdamConfig(beta2=0.999))
    clip: float = 1.0
    seed: int = 0


class FinetuneModel(nn.Layer):
    """An encoder with the head of a fine-tuning task."""

    def __init__(self, ernie: ErnieModel, task: FinetuneTask):
        super().__init__()
        self.ernie, self.task = ernie, task
        self.head = task.head(ernie)
        initialize(self.head, ernie.config.initializer_range)

    def loss(self, batch: Packed) -> Loss:
        """The loss of one batch."""
        return self.task.loss(self.head, self.ernie.encode_packed(batch), batch)


def finetune(
    ernie: ErnieModel,
    tokenizer: Tokenizer,
    task: FinetuneTask,
    train: Sequence[Row],
    dev: Sequence[Row],
    settings: FinetuneSettings,
    progress: Callable[[int, Score], None] | None = None,
) -> tuple[FinetuneModel, list[Score]]:
    """Train encoder and head on `train`; returns them with the headline score on `dev` after each epoch.

    Order, dropout and the head's first weights follow from the seed.  Raises UserError for rows the task cannot read.
    """
    paddle.seed(settings.seed)
    model = FinetuneModel(ernie, task)
    samples = [task.sample(row, tokenizer) for row in train]
    dev_batches = batches([task.sample(row, tokenizer) for row in dev], settings.tokens)
    epochs = [shuffled(samples, settings, epoch) for epoch in range(settings.epochs)]
    trainer = Trainer(model, settings.adam, clip=settings.clip, patience=20, seed=settings.seed)
    steps, step, scores = sum(map(len, epochs)), 0, []
    for epoch, chosen in enumerate(epochs):
        for batch in chosen:
            rate = settings.rate.at(step, steps)
            trainer.step(step, [("task", batch)], lambda _, packed: model.loss(packed), rate)
            step += 1
        scores.append(next(iter(evaluate(model, model.loss, dev_batches, task.metrics).values())))
        if progress is not None:
            progress(epoch, scores[-1])
    return model, scores


def shuffled(samples: Sequence[Sample], settings: FinetuneSettings, epoch: int) -> list[Packed]:
    """The samples in batches, in the order of one epoch."""
    rng = order.generator(settings.seed, "finetune", epoch)
    return [pack([samples[i] for i in batch]) for batch in plan([len(s) for s in samples], settings.tokens, rng)]


def batches(samples: Sequence[Sample], tokens: int) -> list[Packed]:
    """The samples in batches, in the order they stand."""
    ends = np.cumsum([len(sample) for sample in samples])
    found, first = [], 0
    while first < len(samples):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + tokens, side="right")))
        found.append(pack(samples[first:last]))
        first = last
    return found

"""Run by each rank, and by the tests themselves in one process: ten steps of a small model on two tasks.

training.py LAYOUT_AS_JSON DROPOUT: prints losses and gradient norms of each step, and the weights in the end.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import paddle

from ernie.config import build, from_dict
from ernie.data.batch import Labels, Layout, Packed
from ernie.kernels.precision import precision
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.model.heads import MaskedTokenHead, SequenceHead
from ernie.model.losses import Loss, cross_entropy
from ernie.parallel.layout import ParallelConfig
from ernie.parallel.world import World
from ernie.train.settings import AdamConfig
from ernie.train.trainer import Trainer

STEPS, MICRO_BATCHES = 10, 4
CLASSES, CLIP = 3, 0.5


def model(dropout: float) -> ErnieModel:
    """An encoder with two heads, the same in every process."""
    paddle.seed(3)
    shape = EncoderConfig(
        vocab_size=48,
        hidden_size=16,
        layers=4,
        heads=4,
        intermediate_size=32,
        max_positions=24,
        dropout=dropout,
        attention_dropout=dropout,
    )
    made = ErnieModel(shape)
    made.words, made.kinds = MaskedTokenHead(made), SequenceHead(made, CLASSES)
    return made


def micro_batches(step: int) -> list[tuple[str, Packed]]:
    """Those of a step: of several lengths and targets; in every third step all are of one task."""
    rng = np.random.default_rng(step)
    names = ["words"] * MICRO_BATCHES if step % 3 == 0 else ["words", "kinds", "kinds", "words"]
    return [(name, batch(name, rng)) for name in names]


def batch(name: str, rng: np.random.Generator) -> Packed:
    layout = Layout.of_lengths(rng.integers(1, 20, rng.integers(1, 5)))
    ids, segments = rng.integers(0, 48, layout.tokens), rng.integers(0, 2, layout.tokens)
    if name == "words":
        places = np.sort(rng.choice(layout.tokens, rng.integers(1, layout.tokens + 1), replace=False))
        labels = Labels(ids[places], places)
    else:
        labels = Labels(rng.integers(0, CLASSES, layout.sequences), None)
    return Packed(ids, segments, layout, {"label": labels}, np.zeros((layout.sequences, 3), np.int64))


def train(layout: ParallelConfig, dropout: float = 0.0) -> dict[str, Any]:
    """Losses and gradient norms of every step, and the weights after the last."""
    world = World.start(layout)
    learning = model(dropout)
    world.split(learning)
    adam = AdamConfig(weight_decay=0.1)
    trainer = Trainer(learning, adam, clip=CLIP, patience=3, seed=1, world=world)

    def loss(name: str, batch: Packed) -> Loss:
        hidden_TD, labels = learning.encode_packed(batch), batch.labels["label"]
        if name == "words":
            return learning.words.loss(hidden_TD, labels.positions, labels.values)
        return cross_entropy(learning.kinds(hidden_TD, batch.layout), labels.values)

    with precision("fp32"):
        reports = [trainer.step(step, micro_batches(step), loss, 1e-2) for step in range(STEPS)]
    return {
        "losses": [report.losses for report in reports],
        "norms": [report.gradient_norm for report in reports],
        "weights": {name: value.tolist() for name, value in world.whole(dict(learning.named_parameters())).items()},
    }


if __name__ == "__main__":
    print(json.dumps(train(build(ParallelConfig, from_dict(json.loads(sys.argv[1]))), float(sys.argv[2]))))

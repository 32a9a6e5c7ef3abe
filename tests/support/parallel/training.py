"""Run by each rank, and by the tests in one process: train a small model on two tasks for six steps.

training.py JSON, a list and an object of arguments of `train`: prints the losses and gradient norms of each step, and
the final weights.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import paddle
from paddle import Tensor, nn

from ernie.data.batch import Labels, Layout, Packed
from ernie.kernels.precision import Precision, precision
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.model.heads import MaskedTokenHead, SequenceHead
from ernie.model.losses import Loss, cross_entropy
from ernie.parallel.layout import ParallelConfig
from ernie.parallel.mesh import Mesh
from ernie.parallel.serial import SerialModel
from ernie.train.adam_config import AdamConfig
from ernie.train.trainer import Trainer

STEPS, MICRO_BATCHES = 6, 4
WITHOUT_TARGETS = 1  # the step without targets
CLASSES, CLIP, RATE = 3, 0.5, 1e-3


class TwoTasks(nn.Layer):
    """An encoder with two heads, the same in every process."""

    def __init__(self, dropout: float, layers: int):
        super().__init__()
        paddle.seed(3)
        shape = EncoderConfig(
            vocab_size=48,
            hidden_size=16,
            layers=layers,
            heads=4,
            intermediate_size=32,
            max_positions=24,
            dropout=dropout,
            attention_dropout=dropout,
        )
        self.ernie = ErnieModel(shape)
        self.words, self.kinds = MaskedTokenHead(self.ernie), SequenceHead(self.ernie, CLASSES)

    def task_embedding(self, name: str) -> int:
        return ["words", "kinds"].index(name)

    def loss(self, name: str, batch: Packed) -> Loss:
        return self.head_loss(name, self.ernie.encode_packed(batch, self.task_embedding(name)), batch)

    def encoder_input(self, _: str, batch: Packed) -> tuple[Packed, None]:
        """The whole batch."""
        return batch, None

    def head_loss(self, name: str, hidden_TD: Tensor, batch: Packed) -> Loss:
        labels = batch.labels["label"]
        if name == "words":
            return self.words.loss(hidden_TD, labels.positions, labels.values)
        return cross_entropy(self.kinds(hidden_TD, batch.layout), labels.values)


def micro_batches(step: int, separate: bool = False) -> list[tuple[str, Packed]]:
    """The micro-batches of a step, with several lengths and targets, from both tasks.

    In every third step, or with `separate` in all, they are of one task. In step WITHOUT_TARGETS no micro-batch has a
    target, in the next one only the first has.
    """
    rng = np.random.default_rng(step)
    names = ["words"] * MICRO_BATCHES if step % 3 == 0 else ["words", "kinds", "kinds", "words"]
    if separate:
        names = [("words", "kinds")[step % 2]] * MICRO_BATCHES
    batches = [(name, batch(name, rng)) for name in names]
    if step == WITHOUT_TARGETS:
        return [(name, _drop_targets(packed)) for name, packed in batches]
    if step == WITHOUT_TARGETS + 1:
        return batches[:1] + [(name, _drop_targets(packed)) for name, packed in batches[1:]]
    return batches


def _drop_targets(packed: Packed) -> Packed:
    return replace(packed, labels={"label": Labels(np.zeros(0, np.int64), np.zeros(0, np.int64))})


def batch(name: str, rng: np.random.Generator) -> Packed:
    layout = Layout.of_lengths(rng.integers(1, 20, rng.integers(1, 5)))
    ids, segments = rng.integers(0, 48, layout.tokens), rng.integers(0, 2, layout.tokens)
    if name == "words":
        positions = np.sort(rng.choice(layout.tokens, rng.integers(1, layout.tokens + 1), replace=False))
        labels = Labels(ids[positions], positions)
    else:
        labels = Labels(rng.integers(0, CLASSES, layout.sequences), None)
    return Packed(ids, segments, layout, {"label": labels}, np.zeros((layout.sequences, 3), np.int64))


def train(
    layout: dict[str, Any],
    dropout: float = 0.0,
    steps: tuple[int, int] = (0, STEPS),
    load: str = "",
    save: str = "",
    layers: int = 4,
    kind: Precision = "fp32",
    separate: bool = False,
    own_batches: bool = False,
    serial: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Losses and gradient norms of every step, the final weights, and the weights and moments gathered from all ranks.

    Resumes from the state in the file `load`, and writes its own to `save`.  With `own_batches`, the trainer is given
    None instead of the micro-batches of other processes.  With a layout `serial`, this process computes all of it.
    """
    mesh = Mesh.connect(ParallelConfig(**layout))
    with mesh.watch:
        model = TwoTasks(dropout, layers)
        state = dict(np.load(load)) if load else {}
        if state:
            for name, parameter in model.named_parameters():
                parameter.set_value(state[name])
        adam = AdamConfig(weight_decay=0.1)
        trainer = Trainer(model, adam, clip=CLIP, max_bad_steps=3, seed=1, separate_moments=separate, mesh=mesh)
        parameters, sharded = dict(model.named_parameters()), trainer.distributed.state
        if state:
            trainer.optimizer.set_state(state)

        loss, before = model.loss, None
        if serial is not None:
            in_turn = SerialModel(model, ParallelConfig(**serial), model.loss)
            loss, before = in_turn.loss, in_turn.before

        def batches(step: int) -> list[tuple[str, Packed | None]]:
            own = mesh.shard(range(MICRO_BATCHES))
            return [
                (name, packed if number in own or not own_batches else None)
                for number, (name, packed) in enumerate(micro_batches(step, separate))
            ]

        with precision(kind):
            reports = [trainer.step(step, batches(step), loss, RATE, before) for step in range(*steps)]
        weights = {name: sharded.full(value, value).numpy() for name, value in parameters.items()}
        gathered = dict(sharded.gather({name: (value, value) for name, value in parameters.items()}))
        state = trainer.optimizer.state()
        if save and mesh.rank == 0:
            np.savez(save, **gathered, **state)
        return {
            "losses": [report.losses for report in reports],
            "norms": [report.gradient_norm for report in reports],
            "weights": {name: value.tolist() for name, value in weights.items()},
            "gathered": {name: value.tolist() for name, value in {**gathered, **state}.items()},
        }


if __name__ == "__main__":
    arguments, options = json.loads(sys.argv[1])
    print(json.dumps(train(*arguments, **options)))

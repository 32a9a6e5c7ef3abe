"""What a pretraining step of a base model asks of a GPU, played by a CPU: copies, operators and memory traffic."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import paddle
import pytest
from support.operators import counted_operators

from ernie.data.batch import Labels, Layout, Packed
from ernie.kernels.precision import precision
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.model.losses import Loss
from ernie.train.adam_config import AdamConfig
from ernie.train.trainer import Trainer
from pretrain.model import MultiTaskModel
from tasks.pretraining.knowledge_masking import KnowledgeMasking

# As deep as a base model, of whose width the number of operators is independent.
SHAPE = EncoderConfig(vocab_size=40, hidden_size=16, layers=12, heads=2, intermediate_size=32, max_positions=16)
MASKED = np.array([1, 9, 14])


def micro_batch(seed: int) -> Packed:
    layout = Layout.of_lengths([7, 1, 12])
    ids = np.random.default_rng(seed).integers(5, 40, layout.tokens)
    labels = {"label": Labels(ids[MASKED], MASKED)}
    return Packed(ids, np.zeros_like(ids), layout, labels, np.zeros((layout.sequences, 3), np.int64))


@dataclass
class Budget:
    """What a step asked for."""

    operators: int
    added: int
    uploads: int
    downloads: int


@pytest.fixture(scope="module")
def budgets() -> dict[int, Budget]:
    """Those of steps of some numbers of micro-batches, after a first step, which makes what stays."""
    found, added = {}, []  # the number of gradients to which those of a micro-batch are added
    with counted_operators() as (device, operators):
        model = MultiTaskModel(ErnieModel(SHAPE), {"masking": KnowledgeMasking()})
        trainer = Trainer(model, AdamConfig(), clip=1.0, max_bad_steps=3, seed=0)

        def loss(name: str, batch: Packed) -> Loss:
            added.append(sum(parameter.grad is not None for parameter in model.parameters()))
            result = model.loss(name, batch)
            operators.add_backward(result.total)
            return result

        for step, count in enumerate((1, 1, 2)):
            device.forget()
            operators.calls.clear()
            added.clear()
            with precision("bf16"):
                trainer.step(step, [("masking", micro_batch(number)) for number in range(count)], loss, 1e-3)
            total = operators.calls.total() + device.launches.total()
            found[count] = Budget(total, sum(added), len(device.uploads), len(device.downloads))
    return found


def test_a_step_makes_at_most_two_uploads_and_one_download(budgets: dict[int, Budget]) -> None:
    for budget in budgets.values():
        assert budget.uploads <= 2
        assert budget.downloads == 1


def test_a_micro_batch_takes_fewer_than_450_operators(budgets: dict[int, Budget]) -> None:
    """Without the sums of gradients that Paddle makes by itself, such as those of a tensor that is used twice."""
    assert 300 < budgets[2].operators - budgets[1].operators < 450


def test_gradients_of_linear_layers_are_not_added_by_operators_of_their_own(budgets: dict[int, Budget]) -> None:
    gains_and_offsets = 2 * (2 * SHAPE.layers + 2)  # of the layers, the embeddings and the head
    others = 4 + 2  # tables of embeddings; the table of words and the bias of the head's logits, of which one is shared
    assert 0 < budgets[2].added <= gains_and_offsets + others


@pytest.mark.parametrize(("scale", "wanted"), [(1.0, 28), (0.5, 36)])
def test_an_update_reads_and_writes_28_bytes_a_weight_and_8_more_where_it_clips(scale: float, wanted: int) -> None:
    with counted_operators() as (_, operators):
        layer = paddle.nn.Linear(64, 64)
        trainer = Trainer(layer, AdamConfig(), clip=1.0, max_bad_steps=3, seed=0)
        for _ in range(2):  # the first one also makes the moments
            for parameter in layer.parameters():
                parameter.grad = paddle.ones_like(parameter)
            operators.memory = 0
            trainer.optimizer.step(1e-3, dict.fromkeys(trainer.optimizer.parameters, scale))
    weights = sum(parameter.size for parameter in layer.parameters())
    assert operators.memory / weights == pytest.approx(wanted, rel=0.01)

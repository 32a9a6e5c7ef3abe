"""Moving averages of weights, adversarial passes and frozen parts, against their definitions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import paddle
import pytest
from paddle import nn

from ernie.data.batch import Packed, pack
from ernie.data.document import Sample
from ernie.errors import UserError
from ernie.model.losses import Loss, cross_entropy
from ernie.train.adam_config import AdamConfig
from ernie.train.adversarial_config import AdversarialConfig
from ernie.train.trainer import Trainer

NO_DECAY = AdamConfig(weight_decay=0.0)
Weights = dict[str, np.ndarray]


class Classifier(nn.Layer):
    """A table of embeddings under a classifier that is not linear."""

    def __init__(self) -> None:
        super().__init__()
        paddle.seed(1)
        self.table = nn.Embedding(20, 6)
        self.inner, self.outer = nn.Linear(6, 8), nn.Linear(8, 3)
        self.spoiled = False

    def loss(self, _: str, batch: Packed) -> Loss:
        starts = paddle.to_tensor(batch.ids[batch.layout.starts])
        logits = self.outer(paddle.tanh(self.inner(self.table(starts))))
        return cross_entropy(logits * float("nan") if self.spoiled else logits, batch.labels["label"].values)


def batch(size: int, seed: int = 0) -> Packed:
    rng = np.random.default_rng(seed)
    samples = [
        Sample(rng.integers(20, size=3), np.zeros(3, np.int64), {"label": int(rng.integers(3))}) for _ in range(size)
    ]
    return pack(samples, np.array([[0, i, 0] for i in range(size)]))


def halves(size: int) -> list[tuple[str, Packed]]:
    """The batch of `batch(size)` in two pieces."""
    whole = batch(size)
    found = []
    for part in (slice(size // 2), slice(size // 2, None)):
        samples = [
            Sample(ids, np.zeros(3, np.int64), {"label": int(label)})
            for ids, label in zip(np.split(whole.ids, size)[part], whole.labels["label"].values[part], strict=True)
        ]
        found.append(("task", pack(samples, whole.samples[part])))
    return found


def trainer(model: nn.Layer, average: float = 0.0, adversarial: AdversarialConfig | None = None) -> Trainer:
    attack = None if adversarial is None else (adversarial, "table.weight")
    return Trainer(model, NO_DECAY, clip=0.0, max_bad_steps=9, seed=0, average=average, adversarial=attack)


def weights(model: nn.Layer) -> Weights:
    return {name: value.numpy().copy() for name, value in model.named_parameters()}


def gradients_at(model: Classifier, table: np.ndarray, packed: Packed) -> dict[str, np.ndarray]:
    """The gradients of the mean loss where the embeddings are those of `table`."""
    own = model.table.weight.numpy().copy()
    model.table.weight.set_value(table.astype(np.float32))
    loss = model.loss("", packed)
    (loss.total / loss.count).backward()
    found = {name: value.grad.numpy().astype(np.float64) for name, value in model.named_parameters()}
    for parameter in model.parameters():
        parameter.clear_gradient(False)
    model.table.weight.set_value(own)
    return found


def used_gradients(model: Classifier, config: AdversarialConfig, batches: list[tuple[str, Packed]]) -> Weights:
    """The gradients that a step of training updates with."""
    own, found = trainer(model, adversarial=config), {}
    own.optimizer.step = lambda *_, **__: found.update(  # type: ignore[method-assign]
        {name: value.grad.numpy().copy() for name, value in model.named_parameters()}
    )
    own.step(0, batches, model.loss, 0.1)
    for parameter in model.parameters():
        parameter.clear_gradient(False)
    return found


def close(found: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, atol=1e-6, err_msg=name)


def test_averages_are_as_defined_and_the_weights_are_trained_as_without() -> None:
    plain, model = Classifier(), Classifier()
    alone, averaging = trainer(plain), trainer(model, average=0.5)
    expected: dict[str, np.ndarray] = {}
    for step in range(6):
        for own, layer in ((alone, plain), (averaging, model)):
            own.step(step, [("task", batch(8, step))], layer.loss, 0.05)
        share = min(0.5, (2 + step) / (11 + step)) if step else 0.0
        expected = {
            name: share * expected.get(name, np.zeros(values.shape)) + (1 - share) * values.astype(np.float64)
            for name, values in weights(model).items()
        }
    for name, values in weights(plain).items():
        np.testing.assert_array_equal(weights(model)[name], values)
    close(averaging.averages(), expected)
    assert alone.averages() == {}


def test_averages_go_on_bit_for_bit_from_a_saved_state() -> None:
    model, again = Classifier(), Classifier()
    first = trainer(model, average=0.9)
    for step in range(3):
        first.step(step, [("task", batch(8, step))], model.loss, 0.05)
    second = trainer(again, average=0.9)
    again.set_state_dict(model.state_dict())
    second.set_state(first.state())
    for own, layer in ((first, model), (second, again)):
        own.step(3, [("task", batch(8, 3))], layer.loss, 0.05)
    for name, values in first.averages().items():
        np.testing.assert_array_equal(second.averages()[name], values)


def test_one_move_adds_the_gradients_at_the_place_uphill() -> None:
    model, packed = Classifier(), batch(8)
    before = weights(model)
    table = before["table.weight"].astype(np.float64)
    clean = gradients_at(model, table, packed)
    uphill = clean["table.weight"] / np.linalg.norm(clean["table.weight"])
    moved = gradients_at(model, table + 0.7 * uphill, packed)
    found = used_gradients(model, AdversarialConfig(epsilon=0.7), [("task", packed)])
    close(found, {name: values + moved[name] for name, values in clean.items()})
    close(weights(model), before)  # the table is back where it was


def test_several_moves_stay_within_the_ball_and_the_last_place_counts() -> None:
    model, packed = Classifier(), batch(8)
    table = model.table.weight.numpy().astype(np.float64)
    clean = gradients_at(model, table, packed)
    here, way = clean, np.zeros_like(table)
    for _ in range(4):
        way += 0.4 * here["table.weight"] / np.linalg.norm(here["table.weight"])
        way *= min(1.0, 0.9 / np.linalg.norm(way))
        here = gradients_at(model, table + way, packed)
    assert np.linalg.norm(way) == pytest.approx(0.9)
    found = used_gradients(model, AdversarialConfig(epsilon=0.9, moves=4, move=0.4), [("task", packed)])
    close(found, {name: values + here[name] for name, values in clean.items()})


def test_micro_batches_change_nothing_about_an_adversarial_step() -> None:
    config = AdversarialConfig(epsilon=0.7)
    close(used_gradients(Classifier(), config, halves(8)), used_gradients(Classifier(), config, [("task", batch(8))]))


def test_where_the_loss_does_not_depend_on_the_embeddings_nothing_is_added() -> None:
    model, packed = Classifier(), batch(8)
    model.inner.weight.set_value(np.zeros((6, 8), np.float32))
    clean = gradients_at(model, model.table.weight.numpy(), packed)
    assert not clean["table.weight"].any()
    close(used_gradients(model, AdversarialConfig(epsilon=0.7), [("task", packed)]), clean)


def test_a_step_that_is_not_finite_is_skipped_and_leaves_the_embeddings() -> None:
    model = Classifier()
    before, own = weights(model), trainer(model, adversarial=AdversarialConfig(epsilon=0.7))
    model.spoiled = True
    assert own.step(0, [("task", batch(8))], model.loss, 0.1).skipped
    close(weights(model), before)
    model.spoiled = False
    assert not own.step(1, [("task", batch(8))], model.loss, 0.1).skipped


def test_a_loss_without_words_cannot_be_attacked() -> None:
    model = Classifier()
    model.table.weight.stop_gradient = True
    own = trainer(model, adversarial=AdversarialConfig(epsilon=0.7))
    with pytest.raises(UserError, match=r"train\.adversarial: the loss of this kind does not depend on the embeddings"):
        own.step(0, [("task", batch(8))], model.loss, 0.1)


@pytest.mark.parametrize("given", [{"epsilon": -1.0}, {"moves": 0}, {"epsilon": 1.0, "moves": 2, "move": 0.0}])
def test_settings_of_an_attack_are_checked(given: dict[str, float]) -> None:
    with pytest.raises(UserError, match="expected"):
        AdversarialConfig(**given)  # type: ignore[arg-type]

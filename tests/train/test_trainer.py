"""One training step: AdamW, gradient accumulation and clipping, and what a non-finite step must leave unchanged."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import pairwise

import numpy as np
import paddle
import pytest
from paddle import Tensor, nn

from ernie.data.batch import Packed, pack
from ernie.data.document import IGNORE, Sample
from ernie.model.losses import Loss, cross_entropy
from ernie.parallel.mesh import Mesh
from ernie.parallel.sharded_state import ShardedState
from ernie.train.adam_config import AdamConfig
from ernie.train.optimizer import Optimizer
from ernie.train.trainer import Trainer, TrainingStopped

pytestmark = pytest.mark.usefixtures("either_device")
ADAM = AdamConfig(beta1=0.9, beta2=0.98, epsilon=1e-6, weight_decay=0.1)


class TwoTasks(nn.Layer):
    """A shared embedding with two sequence classifiers: a multi-task model without the encoder."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        paddle.seed(1)
        self.table = nn.Embedding(30, 6)
        self.norm = nn.LayerNorm(6)
        self.dropout = nn.Dropout(dropout)
        self.heads = nn.LayerDict({"red": nn.Linear(6, 3), "blue": nn.Linear(6, 4)})
        self.spoil: Callable[[Tensor], Tensor] | None = None

    def loss(self, name: str, batch: Packed) -> Loss:
        starts = paddle.to_tensor(batch.ids[batch.layout.starts])
        logits = self.heads[name](self.dropout(self.norm(self.table(starts))))
        found = cross_entropy(logits, batch.labels["label"].values)
        return found if self.spoil is None else Loss(self.spoil(found.total), found.count, found.logits, found.labels)


def batch(size: int, seed: int = 0, epoch: int = 0) -> Packed:
    rng = np.random.default_rng(seed)
    samples = [
        Sample(rng.integers(30, size=4), np.zeros(4, np.int64), {"label": int(rng.integers(3))}) for _ in range(size)
    ]
    return pack(samples, np.array([[epoch, 100 + i, i] for i in range(size)]))


def new_trainer(
    model: TwoTasks, adam: AdamConfig = ADAM, clip: float = 0.0, max_bad_steps: int = 3, seed: int = 0
) -> Trainer:
    return Trainer(model, adam, clip=clip, max_bad_steps=max_bad_steps, seed=seed)


def weights(model: nn.Layer) -> dict[str, np.ndarray]:
    return {name: value.numpy().copy() for name, value in model.named_parameters()}


def gradients(model: TwoTasks, *terms: tuple[float, str, Packed]) -> dict[str, np.ndarray]:
    """Return the gradients of a weighted sum of mean losses, computed without the trainer."""
    for weight, name, packed in terms:
        loss = model.loss(name, packed)
        (loss.total * (weight / loss.count)).backward()
    result = {name: p.grad.numpy().copy() for name, p in model.named_parameters() if p.grad is not None}
    model.clear_gradients()
    for parameter in model.parameters():
        parameter.clear_gradient(set_to_zero=False)
    return result


def norm(arrays: dict[str, np.ndarray]) -> float:
    return math.sqrt(sum(float((value.astype(np.float64) ** 2).sum()) for value in arrays.values()))


def same(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> bool:
    return first.keys() == second.keys() and all(first[name].tobytes() == second[name].tobytes() for name in first)


# -------------------------------------------------------------------------------------------------- AdamW


def test_five_steps_equal_a_reference_adamw() -> None:
    model = TwoTasks()
    trainer = new_trainer(model)
    values = {name: value.astype(np.float64) for name, value in weights(model).items()}
    first, second = ({name: np.zeros_like(value) for name, value in values.items()} for _ in range(2))
    for step in range(5):
        rate, packed = 0.01 * (step + 1), batch(8, step)
        grads = gradients(model, (1.0, "red", packed))
        trainer.step(step, [("red", packed)], model.loss, rate)
        for name, grad in grads.items():
            if values[name].ndim > 1:  # biases and LayerNorm are not decayed
                values[name] *= 1 - rate * ADAM.weight_decay
            first[name] = ADAM.beta1 * first[name] + (1 - ADAM.beta1) * grad
            second[name] = ADAM.beta2 * second[name] + (1 - ADAM.beta2) * grad.astype(np.float64) ** 2
            mean = first[name] / (1 - ADAM.beta1 ** (step + 1))
            spread = np.sqrt(second[name] / (1 - ADAM.beta2 ** (step + 1)))
            values[name] -= rate * mean / (spread + ADAM.epsilon)
        for name, value in weights(model).items():
            np.testing.assert_allclose(value, values[name], rtol=2e-4, atol=2e-5, err_msg=f"step {step}: {name}")


def test_with_zero_gradients_only_matrices_decay() -> None:
    model = TwoTasks()
    before = weights(model)
    optimizer = Optimizer(ShardedState(model, Mesh()), AdamConfig(weight_decay=0.5))
    for parameter in model.parameters():
        (parameter * 0.0).sum().backward()
    optimizer.step(lr=0.1)
    for name, value in weights(model).items():
        np.testing.assert_allclose(value, before[name] * (0.95 if value.ndim > 1 else 1.0), rtol=1e-6)


def test_an_unused_head_keeps_its_weights_and_moments() -> None:
    model = TwoTasks()
    trainer = new_trainer(model)
    trainer.step(0, [("red", batch(8)), ("blue", batch(8, 1))], model.loss, 0.1)
    red, state = weights(model.heads["red"]), trainer.optimizer.state()
    for step in range(1, 4):
        trainer.step(step, [("blue", batch(8, step))], model.loss, 0.1)
    assert same(weights(model.heads["red"]), red)
    for key, value in trainer.optimizer.state().items():
        assert (value.tobytes() == state[key].tobytes()) == key.startswith("heads.red.")


def test_a_head_that_never_trains_keeps_its_initial_weights() -> None:
    model = TwoTasks()
    blue = weights(model.heads["blue"])
    trainer = new_trainer(model)
    trainer.step(0, [("red", batch(8))], model.loss, 0.1)
    assert same(weights(model.heads["blue"]), blue)


def test_separate_moments_equal_those_of_each_task_trained_alone() -> None:
    """Each task's moments average its own gradients, and only its own steps count in the bias correction."""
    model = TwoTasks()
    trainer = Trainer(model, ADAM, clip=0.0, max_bad_steps=3, seed=0, separate_moments=True)
    history: dict[str, list[np.ndarray]] = {"red": [], "blue": []}
    before = weights(model)
    for step, name in enumerate(["red", "blue", "blue", "red", "blue"]):
        gradient = gradients(model, (1.0, name, batch(8, step)))["table.weight"].astype(np.float64)
        history[name].append(gradient)
        trainer.step(step, [(name, batch(8, step))], model.loss, 0.05)
        first = sum(0.1 * 0.9**n * g for n, g in enumerate(reversed(history[name])))
        second = sum(0.02 * 0.98**n * g**2 for n, g in enumerate(reversed(history[name])))
        steps = len(history[name])
        first, second = first / (1 - 0.9**steps), second / (1 - 0.98**steps)
        after = before["table.weight"] * (1 - 0.05 * 0.1) - 0.05 * first / (np.sqrt(second) + 1e-6)
        before = weights(model)
        np.testing.assert_allclose(before["table.weight"], after, rtol=1e-4, atol=1e-6)
    state = trainer.optimizer.state()
    assert (int(state["table.weight/red/steps"][0]), int(state["table.weight/blue/steps"][0])) == (2, 3)


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("beta1", [0.0, 0.9])
def test_training_resumes_from_a_saved_state_bit_for_bit(beta1: float, separate: bool) -> None:
    """Over three runs: the head "red" is unused in the second and trains again in the third."""
    runs = [["red", "blue", "red"], ["blue", "blue"], ["red", "blue"]]
    adam = AdamConfig(beta1=beta1)
    reference_model = TwoTasks()
    reference = Trainer(reference_model, adam, clip=0.0, max_bad_steps=3, seed=0, separate_moments=separate)
    for step, name in enumerate(name for run in runs for name in run):
        reference.step(step, [(name, batch(8, step))], reference_model.loss, 0.05)

    step, saved, state = 0, weights(TwoTasks()), None
    for run in runs:
        model = TwoTasks()
        model.set_state_dict({name: paddle.to_tensor(value) for name, value in saved.items()})
        trainer = Trainer(model, adam, clip=0.0, max_bad_steps=3, seed=0, separate_moments=separate)
        if state is not None:
            trainer.optimizer.set_state(state)
        for name in run:
            trainer.step(step, [(name, batch(8, step))], model.loss, 0.05)
            step += 1
        saved, state = weights(model), trainer.optimizer.state()
    assert same(saved, weights(reference_model))
    assert state is not None
    assert same(state, reference.optimizer.state())


def test_loading_a_state_discards_the_previous_optimizer_state() -> None:
    finals = []
    for past in (0, 3):
        model = TwoTasks()
        trainer = new_trainer(model)
        for step in range(past):
            trainer.step(step, [("red", batch(8, step)), ("blue", batch(8))], model.loss, 0.0)
        other_model = TwoTasks()
        other = new_trainer(other_model)
        other.step(0, [("blue", batch(8, 9))], other_model.loss, 0.0)
        trainer.optimizer.set_state(other.optimizer.state())
        trainer.step(7, [("red", batch(8)), ("blue", batch(8))], model.loss, 0.1)
        finals.append(weights(model))
    assert same(*finals)


# ----------------------------------------------------------------------------- accumulation, tasks, clipping


def split(whole: Packed, sizes: list[int]) -> list[Packed]:
    """Split the sequences of a batch into several batches."""
    bounds = np.cumsum([0, *sizes])
    parts = []
    for start, stop in pairwise(bounds):
        samples = [
            Sample(
                whole.ids[whole.layout.offsets[i] : whole.layout.offsets[i + 1]],
                np.zeros(4, np.int64),
                {"label": int(whole.labels["label"].values[i])},
            )
            for i in range(start, stop)
        ]
        parts.append(pack(samples))
    return parts


def test_micro_batches_of_any_sizes_equal_one_full_batch() -> None:
    whole = batch(20)
    parts = split(whole, [1, 9, 3, 7])
    # A large epsilon makes the update proportional to the gradient, so the comparison is one of gradients.
    adam = AdamConfig(epsilon=10.0, weight_decay=0.0)
    at_once, in_parts = TwoTasks(), TwoTasks()
    full = new_trainer(at_once, adam).step(0, [("red", whole)], at_once.loss, 1.0)
    accumulated = new_trainer(in_parts, adam).step(0, [("red", part) for part in parts], in_parts.loss, 1.0)
    assert accumulated.losses["red"] == pytest.approx(full.losses["red"], rel=1e-6)
    assert accumulated.gradient_norm == pytest.approx(full.gradient_norm, rel=1e-6)
    for name, value in weights(at_once).items():
        np.testing.assert_allclose(weights(in_parts)[name], value, rtol=1e-6, atol=1e-7)


def test_a_task_is_weighted_by_its_micro_batches_not_its_targets() -> None:
    model = TwoTasks()
    red, blue = [batch(3, 1), batch(5, 2), batch(4, 3)], batch(40, 4)
    all_red = concatenate(red)
    expected = gradients(model, (0.75, "red", all_red), (0.25, "blue", blue))
    report = new_trainer(model).step(0, [*(("red", part) for part in red), ("blue", blue)], model.loss, 0.1)
    assert report.gradient_norm == pytest.approx(norm(expected), rel=1e-5)
    fresh = TwoTasks()
    assert report.losses == pytest.approx(
        {"red": mean_loss(fresh, "red", all_red), "blue": mean_loss(fresh, "blue", blue)}, rel=1e-5
    )


def concatenate(parts: list[Packed]) -> Packed:
    samples = [
        Sample(part.ids[4 * i : 4 * i + 4], np.zeros(4, np.int64), {"label": int(part.labels["label"].values[i])})
        for part in parts
        for i in range(part.layout.sequences)
    ]
    return pack(samples)


def mean_loss(model: TwoTasks, name: str, packed: Packed) -> float:
    loss = model.loss(name, packed)
    return float(loss.total) / loss.count


@pytest.mark.parametrize("clip", [0.0, 1e-3, 1e3])
def test_gradients_are_clipped_to_the_configured_norm(clip: float) -> None:
    model = TwoTasks()
    trainer = new_trainer(model, clip=clip)
    raw = norm(gradients(model, (1.0, "red", batch(8))))
    report = trainer.step(0, [("red", batch(8))], model.loss, 0.1)
    assert report.gradient_norm == pytest.approx(raw, rel=1e-5)  # the norm before clipping is reported
    # After one step the first moment is the clipped gradient times 1 - beta1.
    moments = {key: value for key, value in trainer.optimizer.state().items() if key.endswith("/moment1")}
    used = norm(moments) / (1 - ADAM.beta1)
    assert used == pytest.approx(min(raw, clip) if clip else raw, rel=1e-4)


def test_separately_clipped_parameters_do_not_shrink_the_other_gradients() -> None:
    model = TwoTasks()
    raw = gradients(model, (1.0, "red", batch(8)))
    separate = {name for name in raw if name.startswith("heads.red.")}
    norms = [norm({name: raw[name] for name in group}) for group in (set(raw) - separate, separate)]
    clip = sum(norms) / 2  # between the two norms: one group is clipped, the other is not
    assert norms[0] != pytest.approx(norms[1], rel=0.1)
    trainer = Trainer(
        model, ADAM, clip=clip, max_bad_steps=3, seed=0, separate_clip_groups=["heads.blue.", "heads.red."]
    )
    report = trainer.step(0, [("red", batch(8))], model.loss, 0.1)
    assert report.gradient_norm == pytest.approx(norm(raw), rel=1e-5)
    state = trainer.optimizer.state()
    for group, before in zip((set(raw) - separate, separate), norms, strict=True):
        used = norm({name: state[f"{name}/moment1"] for name in group}) / (1 - ADAM.beta1)
        assert used == pytest.approx(min(before, clip), rel=1e-4)


def test_a_step_including_its_dropout_does_not_depend_on_earlier_steps() -> None:
    finals = []
    for past in (0, 5):
        model = TwoTasks(dropout=0.5)
        trainer = new_trainer(model)
        for step in range(past):
            trainer.step(100 + step, [("blue", batch(4, step))], model.loss, 0.0)  # a rate of zero changes no weight
        model.eval()  # as an evaluation leaves it
        trainer.step(7, [("red", batch(16))], model.loss, 0.1)
        finals.append(weights(model.heads["red"]))
    assert same(*finals)
    other = TwoTasks(dropout=0.5)
    new_trainer(other).step(8, [("red", batch(16))], other.loss, 0.1)
    assert not same(weights(other.heads["red"]), finals[0])


def test_dropout_differs_between_micro_batches_and_seeds() -> None:
    def trained_weights(dropout: float, micro_batches: int = 1, seed: int = 0) -> np.ndarray:
        model = TwoTasks(dropout)
        new_trainer(model, AdamConfig(epsilon=10.0), seed=seed).step(
            0, [("red", batch(16))] * micro_batches, model.loss, 1.0
        )
        return weights(model.heads["red"])["weight"]

    np.testing.assert_allclose(trained_weights(0.0, micro_batches=2), trained_weights(0.0), rtol=1e-5)
    for other in (trained_weights(0.5, micro_batches=2), trained_weights(0.5, seed=1), trained_weights(0.0)):
        assert not np.allclose(other, trained_weights(0.5), rtol=1e-5)


def test_a_rate_factor_scales_only_its_parameter() -> None:
    updates = []
    for factors in (None, {"table.weight": 0.25}):
        model = TwoTasks()
        before = weights(model)
        trainer = Trainer(model, ADAM, clip=0.0, max_bad_steps=3, seed=0, lr_factors=factors)
        trainer.step(0, [("red", batch(8))], model.loss, 0.1)
        updates.append({name: value - before[name] for name, value in weights(model).items()})
    for name, update in updates[0].items():
        np.testing.assert_allclose(updates[1][name], update * (0.25 if name == "table.weight" else 1.0), atol=1e-6)


# ----------------------------------------------------------------------------------------------- bad steps


@pytest.mark.parametrize(
    "spoil",
    [
        lambda total: total * float("nan"),
        lambda total: total * float("inf"),
        lambda total: total + paddle.sqrt(total * 0.0),  # a finite loss whose gradient is not
    ],
)
def test_a_non_finite_step_changes_nothing_and_is_counted(spoil: Callable[[Tensor], Tensor]) -> None:
    model = TwoTasks()
    trainer = new_trainer(model)
    trainer.step(0, [("red", batch(8))], model.loss, 0.1)
    before, state = weights(model), trainer.optimizer.state()
    model.spoil = spoil
    report = trainer.step(1, [("blue", batch(4)), ("red", batch(8, 1))], model.loss, 0.1)
    assert report.skipped
    assert trainer.bad_steps == 1
    assert same(weights(model), before)
    assert same(trainer.optimizer.state(), state)

    model.spoil = None
    assert not trainer.step(2, [("red", batch(8, 2))], model.loss, 0.1).skipped
    assert trainer.bad_steps == 0
    clean = TwoTasks()  # trained without the bad step
    other = new_trainer(clean)
    other.step(0, [("red", batch(8))], clean.loss, 0.1)
    other.step(2, [("red", batch(8, 2))], clean.loss, 0.1)
    assert same(weights(model), weights(clean))


def test_training_stops_after_max_bad_steps_in_a_row_and_says_where() -> None:
    model = TwoTasks()
    trainer = new_trainer(model, max_bad_steps=3)
    model.spoil = lambda total: total * float("nan")
    for step in (0, 1):
        trainer.step(step, [("red", batch(8))], model.loss, 0.1)
    with pytest.raises(TrainingStopped) as caught:
        trainer.step(2, [("blue", batch(8, epoch=4)), ("red", batch(8))], model.loss, 0.1)
    assert re.match(r"step 3: .* not finite 3 times in a row \(losses: blue nan, red nan;", str(caught.value))
    assert "The last batch of 'blue' begins with sample 0 of item 100, epoch 4." in str(caught.value)


def test_a_batch_without_targets_changes_nothing_and_does_not_stop_training() -> None:
    unlabeled = pack([Sample(np.arange(4), np.zeros(4, np.int64), {"label": np.full(4, IGNORE)})])
    model, reference = TwoTasks(), TwoTasks()
    new_trainer(model).step(0, [("red", batch(5)), ("blue", unlabeled)], model.loss, 0.1)
    new_trainer(reference).step(0, [("red", batch(5))], reference.loss, 0.1)
    assert same(weights(model), weights(reference))
    before = weights(model)
    report = new_trainer(model).step(1, [("blue", unlabeled)], model.loss, 0.1)
    assert same(before, weights(model))
    assert (report.losses, report.gradient_norm, report.skipped) == ({}, 0.0, False)

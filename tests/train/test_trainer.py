"""One training step: the mathematics of AdamW, of accumulation and of clipping, and what a bad step must not do."""

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
from ernie.train.optimizer import Optimizer
from ernie.train.settings import AdamConfig
from ernie.train.trainer import Trainer, TrainingStopped

ADAM = AdamConfig(beta1=0.9, beta2=0.98, epsilon=1e-6, weight_decay=0.1)


class TwoTasks(nn.Layer):
    """A shared embedding under two classifiers of sequences: the shape of a multi-task model, without the encoder."""

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


def trainer(model: TwoTasks, adam: AdamConfig = ADAM, clip: float = 0.0, patience: int = 3, seed: int = 0) -> Trainer:
    return Trainer(model, adam, clip=clip, patience=patience, seed=seed)


def weights(model: nn.Layer) -> dict[str, np.ndarray]:
    return {name: value.numpy().copy() for name, value in model.named_parameters()}


def gradients(model: TwoTasks, *terms: tuple[float, str, Packed]) -> dict[str, np.ndarray]:
    """The gradients of a weighted sum of mean losses, computed beside the trainer."""
    for weight, name, one in terms:
        found = model.loss(name, one)
        (found.total * (weight / found.count)).backward()
    result = {name: p.grad.numpy().copy() for name, p in model.named_parameters() if p.grad is not None}
    model.clear_gradients()
    for parameter in model.parameters():
        parameter.clear_gradient(set_to_zero=False)
    return result


def norm(arrays: dict[str, np.ndarray]) -> float:
    return math.sqrt(sum(float((value.astype(np.float64) ** 2).sum()) for value in arrays.values()))


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    return one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)


# -------------------------------------------------------------------------------------------------- AdamW


def test_five_steps_equal_adamw_written_out() -> None:
    model = TwoTasks()
    own = trainer(model)
    values = {name: value.astype(np.float64) for name, value in weights(model).items()}
    first, second = ({name: np.zeros_like(value) for name, value in values.items()} for _ in range(2))
    for step in range(5):
        rate, one = 0.01 * (step + 1), batch(8, step)
        slopes = gradients(model, (1.0, "red", one))
        own.step(step, [("red", one)], model.loss, rate)
        for name, slope in slopes.items():
            if values[name].ndim > 1:  # biases and LayerNorm are not decayed
                values[name] *= 1 - rate * ADAM.weight_decay
            first[name] = ADAM.beta1 * first[name] + (1 - ADAM.beta1) * slope
            second[name] = ADAM.beta2 * second[name] + (1 - ADAM.beta2) * slope.astype(np.float64) ** 2
            mean = first[name] / (1 - ADAM.beta1 ** (step + 1))
            spread = np.sqrt(second[name] / (1 - ADAM.beta2 ** (step + 1)))
            values[name] -= rate * mean / (spread + ADAM.epsilon)
        for name, value in weights(model).items():
            np.testing.assert_allclose(value, values[name], rtol=2e-4, atol=2e-5, err_msg=f"step {step}: {name}")


def test_without_gradients_to_speak_of_only_matrices_shrink() -> None:
    model = TwoTasks()
    before = weights(model)
    own = Optimizer(model, AdamConfig(weight_decay=0.5))
    for parameter in model.parameters():
        (parameter * 0.0).sum().backward()
    own.step(rate=0.1)
    for name, value in weights(model).items():
        np.testing.assert_allclose(value, before[name] * (0.95 if value.ndim > 1 else 1.0), rtol=1e-6)


def test_a_head_that_sits_out_keeps_weights_and_moments() -> None:
    model = TwoTasks()
    own = trainer(model)
    own.step(0, [("red", batch(8)), ("blue", batch(8, 1))], model.loss, 0.1)
    red, state = weights(model.heads["red"]), own.optimizer.state()
    for step in range(1, 4):
        own.step(step, [("blue", batch(8, step))], model.loss, 0.1)
    assert same(weights(model.heads["red"]), red)
    for key, value in own.optimizer.state().items():
        assert (value.tobytes() == state[key].tobytes()) == key.startswith("heads.red.")


def test_a_head_that_never_had_a_step_is_as_it_was_made() -> None:
    model = TwoTasks()
    blue = weights(model.heads["blue"])
    own = trainer(model)
    own.step(0, [("red", batch(8))], model.loss, 0.1)
    assert same(weights(model.heads["blue"]), blue)


def test_moments_that_are_apart_are_those_of_each_task_as_if_it_were_alone() -> None:
    """Each task's moments are averages of its own gradients, and its steps alone count for their correction."""
    model = TwoTasks()
    own = Trainer(model, ADAM, clip=0.0, patience=3, seed=0, separate_moments=True)
    expected: dict[str, list[np.ndarray]] = {"red": [], "blue": []}
    before = weights(model)
    for step, name in enumerate(["red", "blue", "blue", "red", "blue"]):
        found = gradients(model, (1.0, name, batch(8, step)))["table.weight"].astype(np.float64)
        expected[name].append(found)
        own.step(step, [(name, batch(8, step))], model.loss, 0.05)
        first = sum(0.1 * 0.9**n * g for n, g in enumerate(reversed(expected[name])))
        second = sum(0.02 * 0.98**n * g**2 for n, g in enumerate(reversed(expected[name])))
        taken = len(expected[name])
        first, second = first / (1 - 0.9**taken), second / (1 - 0.98**taken)
        after = before["table.weight"] * (1 - 0.05 * 0.1) - 0.05 * first / (np.sqrt(second) + 1e-6)
        before = weights(model)
        np.testing.assert_allclose(before["table.weight"], after, rtol=1e-4, atol=1e-6)
    state = own.optimizer.state()
    assert (int(state["table.weight/red/steps"][0]), int(state["table.weight/blue/steps"][0])) == (2, 3)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("beta1", [0.0, 0.9])
def test_training_goes_on_from_a_saved_state_to_the_same_bits(beta1: float, apart: bool) -> None:
    """Through three lives; in the second the head "red" sits out, in the third it trains again."""
    lives = [["red", "blue", "red"], ["blue", "blue"], ["red", "blue"]]
    adam = AdamConfig(beta1=beta1)
    whole = TwoTasks()
    once = Trainer(whole, adam, clip=0.0, patience=3, seed=0, separate_moments=apart)
    for step, name in enumerate(name for life in lives for name in life):
        once.step(step, [(name, batch(8, step))], whole.loss, 0.05)

    step, saved, state = 0, weights(TwoTasks()), None
    for life in lives:
        model = TwoTasks()
        model.set_state_dict({name: paddle.to_tensor(value) for name, value in saved.items()})
        own = Trainer(model, adam, clip=0.0, patience=3, seed=0, separate_moments=apart)
        if state is not None:
            own.optimizer.set_state(state)
        for name in life:
            own.step(step, [(name, batch(8, step))], model.loss, 0.05)
            step += 1
        saved, state = weights(model), own.optimizer.state()
    assert same(saved, weights(whole))
    assert state is not None
    assert same(state, once.optimizer.state())


def test_a_saved_state_leaves_nothing_of_what_an_optimizer_had_before() -> None:
    finals = []
    for past in (0, 3):
        model = TwoTasks()
        own = trainer(model)
        for step in range(past):
            own.step(step, [("red", batch(8, step)), ("blue", batch(8))], model.loss, 0.0)
        known = TwoTasks()
        other = trainer(known)
        other.step(0, [("blue", batch(8, 9))], known.loss, 0.0)
        own.optimizer.set_state(other.optimizer.state())
        own.step(7, [("red", batch(8)), ("blue", batch(8))], model.loss, 0.1)
        finals.append(weights(model))
    assert same(*finals)


# ----------------------------------------------------------------------------- accumulation, tasks, clipping


def split(whole: Packed, sizes: list[int]) -> list[Packed]:
    """The sequences of a batch as several batches."""
    bounds = np.cumsum([0, *sizes])
    found = []
    for start, stop in pairwise(bounds):
        samples = [
            Sample(
                whole.ids[whole.layout.offsets[i] : whole.layout.offsets[i + 1]],
                np.zeros(4, np.int64),
                {"label": int(whole.labels["label"].values[i])},
            )
            for i in range(start, stop)
        ]
        found.append(pack(samples))
    return found


def test_micro_batches_of_any_sizes_equal_one_batch_of_all() -> None:
    whole = batch(20)
    parts = split(whole, [1, 9, 3, 7])
    # A large epsilon makes the update proportional to the gradient, so that the comparison is one of gradients.
    adam = AdamConfig(epsilon=10.0, weight_decay=0.0)
    at_once, in_parts = TwoTasks(), TwoTasks()
    one = trainer(at_once, adam).step(0, [("red", whole)], at_once.loss, 1.0)
    other = trainer(in_parts, adam).step(0, [("red", part) for part in parts], in_parts.loss, 1.0)
    assert other.losses["red"] == pytest.approx(one.losses["red"], rel=1e-6)
    assert other.gradient_norm == pytest.approx(one.gradient_norm, rel=1e-6)
    for name, value in weights(at_once).items():
        np.testing.assert_allclose(weights(in_parts)[name], value, rtol=1e-6, atol=1e-7)


def test_tasks_weigh_as_many_micro_batches_as_they_have_whatever_their_targets() -> None:
    model = TwoTasks()
    red, blue = [batch(3, 1), batch(5, 2), batch(4, 3)], batch(40, 4)
    everything = batch_of(red)
    expected = gradients(model, (0.75, "red", everything), (0.25, "blue", blue))
    report = trainer(model).step(0, [*(("red", one) for one in red), ("blue", blue)], model.loss, 0.1)
    assert report.gradient_norm == pytest.approx(norm(expected), rel=1e-5)
    fresh = TwoTasks()
    assert report.losses == pytest.approx(
        {"red": mean_loss(fresh, "red", everything), "blue": mean_loss(fresh, "blue", blue)}, rel=1e-5
    )


def batch_of(parts: list[Packed]) -> Packed:
    samples = [
        Sample(part.ids[4 * i : 4 * i + 4], np.zeros(4, np.int64), {"label": int(part.labels["label"].values[i])})
        for part in parts
        for i in range(part.layout.sequences)
    ]
    return pack(samples)


def mean_loss(model: TwoTasks, name: str, one: Packed) -> float:
    found = model.loss(name, one)
    return float(found.total) / found.count


@pytest.mark.parametrize("clip", [0.0, 1e-3, 1e3])
def test_gradients_are_clipped_to_the_norm_that_was_set(clip: float) -> None:
    model = TwoTasks()
    own = trainer(model, clip=clip)
    raw = norm(gradients(model, (1.0, "red", batch(8))))
    report = own.step(0, [("red", batch(8))], model.loss, 0.1)
    assert report.gradient_norm == pytest.approx(raw, rel=1e-5)  # what is reported is the norm before
    # After one step the first moment is the gradient that was used, times 1 - beta1.
    moments = {key: value for key, value in own.optimizer.state().items() if key.endswith("/moment1")}
    used = norm(moments) / (1 - ADAM.beta1)
    assert used == pytest.approx(min(raw, clip) if clip else raw, rel=1e-4)


def test_what_is_clipped_apart_does_not_shrink_the_gradients_of_the_rest() -> None:
    model = TwoTasks()
    raw = gradients(model, (1.0, "red", batch(8)))
    apart = {name for name in raw if name.startswith("heads.red.")}
    norms = [norm({name: raw[name] for name in group}) for group in (set(raw) - apart, apart)]
    clip = sum(norms) / 2  # between the two: one of them is clipped, and the other is not
    assert norms[0] != pytest.approx(norms[1], rel=0.1)
    own = Trainer(model, ADAM, clip=clip, patience=3, seed=0, clipped_apart=["heads.blue.", "heads.red."])
    report = own.step(0, [("red", batch(8))], model.loss, 0.1)
    assert report.gradient_norm == pytest.approx(norm(raw), rel=1e-5)
    state = own.optimizer.state()
    for group, before in zip((set(raw) - apart, apart), norms, strict=True):
        used = norm({name: state[f"{name}/moment1"] for name in group}) / (1 - ADAM.beta1)
        assert used == pytest.approx(min(before, clip), rel=1e-4)


def test_a_step_repeats_itself_without_its_past_dropout_included() -> None:
    finals = []
    for past in (0, 5):
        model = TwoTasks(dropout=0.5)
        own = trainer(model)
        for step in range(past):
            own.step(100 + step, [("blue", batch(4, step))], model.loss, 0.0)  # a rate of zero changes no weight
        model.eval()  # as a measurement leaves it
        own.step(7, [("red", batch(16))], model.loss, 0.1)
        finals.append(weights(model.heads["red"]))
    assert same(*finals)
    other = TwoTasks(dropout=0.5)
    trainer(other).step(8, [("red", batch(16))], other.loss, 0.1)
    assert not same(weights(other.heads["red"]), finals[0])


def test_each_micro_batch_and_each_run_has_dropout_of_its_own() -> None:
    def learnt(dropout: float, micro_batches: int = 1, seed: int = 0) -> np.ndarray:
        model = TwoTasks(dropout)
        trainer(model, AdamConfig(epsilon=10.0), seed=seed).step(
            0, [("red", batch(16))] * micro_batches, model.loss, 1.0
        )
        return weights(model.heads["red"])["weight"]

    np.testing.assert_allclose(learnt(0.0, micro_batches=2), learnt(0.0), rtol=1e-5)
    for other in (learnt(0.5, micro_batches=2), learnt(0.5, seed=1), learnt(0.0)):
        assert not np.allclose(other, learnt(0.5), rtol=1e-5)


def test_a_factor_multiplies_the_rate_of_its_parameter_alone() -> None:
    found = []
    for factors in (None, {"table.weight": 0.25}):
        model = TwoTasks()
        before = weights(model)
        own = Trainer(model, ADAM, clip=0.0, patience=3, seed=0, rate_factors=factors)
        own.step(0, [("red", batch(8))], model.loss, 0.1)
        found.append({name: value - before[name] for name, value in weights(model).items()})
    for name, moved in found[0].items():
        np.testing.assert_allclose(found[1][name], moved * (0.25 if name == "table.weight" else 1.0), atol=1e-6)


# ----------------------------------------------------------------------------------------------- bad steps


@pytest.mark.parametrize(
    "spoil",
    [
        lambda total: total * float("nan"),
        lambda total: total * float("inf"),
        lambda total: total + paddle.sqrt(total * 0.0),  # a finite loss whose gradient is not
    ],
)
def test_a_step_that_is_not_finite_changes_nothing_and_is_counted(spoil: Callable[[Tensor], Tensor]) -> None:
    model = TwoTasks()
    own = trainer(model)
    own.step(0, [("red", batch(8))], model.loss, 0.1)
    before, state = weights(model), own.optimizer.state()
    model.spoil = spoil
    report = own.step(1, [("blue", batch(4)), ("red", batch(8, 1))], model.loss, 0.1)
    assert report.skipped
    assert own.bad_steps == 1
    assert same(weights(model), before)
    assert same(own.optimizer.state(), state)

    model.spoil = None
    assert not own.step(2, [("red", batch(8, 2))], model.loss, 0.1).skipped
    assert own.bad_steps == 0
    clean = TwoTasks()  # as if the bad step had never been
    other = trainer(clean)
    other.step(0, [("red", batch(8))], clean.loss, 0.1)
    other.step(2, [("red", batch(8, 2))], clean.loss, 0.1)
    assert same(weights(model), weights(clean))


def test_after_patience_bad_steps_in_a_row_training_stops_and_says_where() -> None:
    model = TwoTasks()
    own = trainer(model, patience=3)
    model.spoil = lambda total: total * float("nan")
    for step in (0, 1):
        own.step(step, [("red", batch(8))], model.loss, 0.1)
    with pytest.raises(TrainingStopped) as caught:
        own.step(2, [("blue", batch(8, epoch=4)), ("red", batch(8))], model.loss, 0.1)
    assert re.match(r"step 2: .* not finite 3 times in a row \(losses: blue nan, red nan;", str(caught.value))
    assert "The last batch of 'blue' begins with sample 0 of item 100, epoch 4." in str(caught.value)


def test_a_batch_without_targets_teaches_nothing_and_stops_nothing() -> None:
    silent = pack([Sample(np.arange(4), np.zeros(4, np.int64), {"label": np.full(4, IGNORE)})])
    one, other = TwoTasks(), TwoTasks()
    trainer(one).step(0, [("red", batch(5)), ("blue", silent)], one.loss, 0.1)
    trainer(other).step(0, [("red", batch(5))], other.loss, 0.1)
    assert same(weights(one), weights(other))
    before = weights(one)
    report = trainer(one).step(1, [("blue", silent)], one.loss, 0.1)
    assert same(before, weights(one))
    assert (report.losses, report.gradient_norm, report.skipped) == ({}, 0.0, False)

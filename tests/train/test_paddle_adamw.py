"""`ernie.AdamW` beside Paddle's own: the same steps and states, whatever is asked of an optimizer."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from paddle import Tensor, nn
from paddle.optimizer.lr import LinearWarmup, StepDecay

from ernie import AdamW
from ernie.errors import UserError

SETTINGS: dict[str, Any] = {"beta1": 0.8, "beta2": 0.97, "epsilon": 1e-5, "weight_decay": 0.3}


class Model(nn.Layer):
    """A table, a norm, and two heads: the second is not in every loss."""

    def __init__(self, dtype: str = "float32") -> None:
        super().__init__()
        paddle.seed(0)
        self.table = nn.Embedding(50, 24)
        self.norm = nn.LayerNorm(24)
        self.first, self.second = nn.Linear(24, 30), nn.Linear(24, 2)
        self.to(dtype=dtype)

    def loss(self, step: int) -> Tensor:
        ids = paddle.to_tensor(np.random.default_rng(step).integers(0, 50, 40))
        x = self.norm(self.table(ids))
        loss = (self.first(x) ** 3).mean()
        return loss + 10 * (self.second(x) ** 2).mean() if step % 3 == 1 else loss


Optimizer = paddle.optimizer.Optimizer
Make = Callable[[type, Model], Optimizer]


def plainly(**settings: Any) -> Make:
    return lambda kind, model: kind(0.03, parameters=model.parameters(), **SETTINGS | settings)


def in_groups(kind: type, model: Model) -> Optimizer:
    head = {"params": model.first.parameters(), "learning_rate": 0.1, "weight_decay": 0.0, "beta1": 0.5}
    rest = {"params": [*model.table.parameters(), *model.norm.parameters(), *model.second.parameters()]}
    return kind(0.03, parameters=[head, rest], grad_clip=nn.ClipGradByGlobalNorm(0.1), **SETTINGS)


def with_a_schedule(kind: type, model: Model) -> Optimizer:
    schedule = LinearWarmup(StepDecay(0.05, 2), warmup_steps=3, start_lr=0.001, end_lr=0.05)
    return kind(schedule, parameters=model.parameters(), grad_clip=nn.ClipGradByGlobalNorm(1e9), **SETTINGS)


def without_clipping_the_table(kind: type, model: Model) -> Optimizer:
    model.table.weight.need_clip = False
    return plainly(grad_clip=nn.ClipGradByGlobalNorm(0.1))(kind, model)


def frozen(kind: type, model: Model) -> Optimizer:
    model.table.weight.stop_gradient = model.norm.bias.stop_gradient = True
    return plainly(grad_clip=nn.ClipGradByGlobalNorm(0.1))(kind, model)


CASES: dict[str, Make] = {
    "plain": plainly(),
    "clipped": plainly(grad_clip=nn.ClipGradByGlobalNorm(0.1)),
    "clipped only if larger": plainly(grad_clip=nn.ClipGradByGlobalNorm(0.1, auto_skip_clip=True)),
    "clipped one by one": plainly(grad_clip=nn.ClipGradByNorm(0.02)),
    "clipped by value": plainly(grad_clip=nn.ClipGradByValue(0.001)),
    "amsgrad": plainly(amsgrad=True, grad_clip=nn.ClipGradByGlobalNorm(0.1)),
    "decay of some": plainly(apply_decay_param_fun=lambda name: name.endswith("b_0")),
    "groups": in_groups,
    "schedule": with_a_schedule,
    "table not clipped": without_clipping_the_table,
    "frozen": frozen,
}


def as_ours(model: Model) -> Callable[[str], bool]:
    """The decay that ours has by default, for Paddle's."""
    matrices = {parameter.name for parameter in model.parameters() if parameter.ndim > 1}
    return lambda name: name in matrices


def paddles(make: Make, model: Model) -> Optimizer:
    """Make Paddle's own AdamW, with the defaults of ours."""
    optimizer = make(paddle.optimizer.AdamW, model)
    if optimizer._apply_decay_param_fun is None:
        optimizer._apply_decay_param_fun = as_ours(model)
    return optimizer


def train(model: Model, optimizer: Optimizer, steps: range) -> Iterator[list[np.ndarray]]:
    """Take the steps, yielding the weights after each."""
    for step in steps:
        model.loss(step).backward()
        optimizer.step()
        optimizer.clear_grad(set_to_zero=False)
        if isinstance(optimizer._learning_rate, paddle.optimizer.lr.LRScheduler):
            optimizer._learning_rate.step()
        yield [parameter.numpy().copy() for parameter in model.parameters()]


def assert_close(found: list[np.ndarray], wanted: list[np.ndarray]) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, "float32") for name in CASES), ("clipped", "float64"), ("groups", "float64")]
)
def test_every_step_equals_that_of_paddles_optimizer(name: str, dtype: str) -> None:
    ours, theirs, make = Model(dtype), Model(dtype), CASES[name]
    pairs = zip(train(ours, make(AdamW, ours), range(8)), train(theirs, paddles(make, theirs), range(8)), strict=True)
    for found, wanted in pairs:
        assert_close(found, wanted)


def test_the_defaults_are_those_of_the_trainer_and_decay_only_matrices() -> None:
    model = Model()
    optimizer = AdamW(0.5, parameters=model.parameters())
    assert (optimizer._beta1, optimizer._beta2, optimizer._epsilon) == (0.9, 0.98, 1e-6)
    before = {name: value.numpy().copy() for name, value in model.named_parameters()}
    for parameter in model.parameters():
        parameter.grad = paddle.zeros_like(parameter)
    optimizer.step()
    for name, parameter in model.named_parameters():
        factor = 1 - 0.5 * 0.01 if parameter.ndim > 1 else 1
        np.testing.assert_allclose(parameter.numpy(), factor * before[name], rtol=1e-6)


def test_parameters_without_gradient_and_frozen_ones_keep_weights_and_have_no_moments() -> None:
    model = Model()
    model.norm.bias.stop_gradient = True
    optimizer = AdamW(0.1, parameters=model.parameters())
    still = [*model.second.parameters(), model.norm.bias]
    before = [parameter.numpy().copy() for parameter in still]
    for _ in train(model, optimizer, range(1)):
        pass
    for parameter, weights in zip(still, before, strict=True):
        assert np.array_equal(parameter.numpy(), weights)
        assert not any(parameter.name in name for name in optimizer.state_dict())


def test_clearing_drops_gradients_so_that_an_unused_head_stays() -> None:
    model = Model()
    optimizer = AdamW(0.1, parameters=model.parameters())
    model.loss(1).backward()
    optimizer.step()
    optimizer.clear_grad()
    assert all(parameter.grad is None for parameter in model.parameters())
    before = model.second.weight.numpy().copy()
    model.loss(2).backward()
    optimizer.step()
    assert np.array_equal(model.second.weight.numpy(), before)
    optimizer.clear_grad(set_to_zero=True)
    assert not model.first.weight.grad.numpy().any()


@pytest.mark.parametrize("name", ["plain", "groups", "schedule"])
def test_training_resumes_from_a_saved_state_bit_for_bit(name: str, tmp_path: Path) -> None:
    model = Model()
    optimizer = CASES[name](AdamW, model)
    for _ in train(model, optimizer, range(3)):
        pass
    paddle.save(optimizer.state_dict(), str(tmp_path / "adam.pdopt"))
    weights = copy.deepcopy({key: value.numpy() for key, value in model.state_dict().items()})
    wanted = list(train(model, optimizer, range(3, 6)))
    model.set_state_dict(weights)
    resumed = CASES[name](AdamW, model)
    resumed.set_state_dict(paddle.load(str(tmp_path / "adam.pdopt")))
    for found, values in zip(train(model, resumed, range(3, 6)), wanted, strict=True):
        for one, other in zip(found, values, strict=True):
            assert np.array_equal(one, other)


def test_paddles_optimizer_continues_from_its_state() -> None:
    ours, theirs, make = Model(), Model(), plainly()
    optimizer = make(AdamW, ours)
    for _ in train(ours, optimizer, range(3)):
        pass
    theirs.set_state_dict(ours.state_dict())
    names = dict(zip((p.name for p in ours.parameters()), (p.name for p in theirs.parameters()), strict=True))
    other = paddles(make, theirs)
    state = optimizer.state_dict()
    other.set_state_dict({renamed(key, names): value.clone() for key, value in state.items()})
    for found, wanted in zip(train(ours, optimizer, range(3, 6)), train(theirs, other, range(3, 6)), strict=True):
        assert_close(found, wanted)


def renamed(key: str, names: dict[str, str]) -> str:
    """Return the key of a state for the parameter of another model."""
    old = max((name for name in names if key.startswith(name)), key=len)
    return names[old] + key.removeprefix(old)


def test_moments_loaded_before_a_parameter_has_a_gradient_are_kept() -> None:
    model = Model()
    optimizer = CASES["plain"](AdamW, model)
    for _ in train(model, optimizer, range(2)):
        pass
    state = optimizer.state_dict()
    resumed = CASES["plain"](AdamW, model)
    resumed.set_state_dict(state)
    for _ in train(model, resumed, range(2, 3)):  # without the second head
        pass
    key = f"{model.second.weight.name}_moment1_0"
    assert np.array_equal(resumed.state_dict()[key].numpy(), state[key].numpy())
    assert resumed.state_dict().keys() == state.keys()


def test_a_state_of_other_parameters_is_rejected() -> None:
    model, other = Model(), Model()
    optimizer = AdamW(0.1, parameters=model.parameters())
    for _ in train(model, optimizer, range(1)):
        pass
    with pytest.raises(UserError, match=r"the state has 'embedding_\d+.w_0_moment1_0', and the optimizer no such"):
        AdamW(0.1, parameters=other.parameters()).set_state_dict(optimizer.state_dict())


def test_the_rate_is_read_and_set_as_in_paddle() -> None:
    model = Model()
    optimizer = AdamW(0.1, parameters=model.parameters())
    optimizer.set_lr(0.0)
    before = model.first.weight.numpy().copy()
    for _ in train(model, optimizer, range(1)):
        pass
    assert optimizer.get_lr() == 0.0
    assert np.array_equal(model.first.weight.numpy(), before)
    assert with_a_schedule(AdamW, model).get_lr() == pytest.approx(0.001)


@pytest.mark.usefixtures("gpu_device")
def test_on_a_gpu_the_steps_are_those_of_paddle() -> None:
    ours, theirs, make = Model(), Model(), CASES["clipped"]
    for found, wanted in zip(
        train(ours, make(AdamW, ours), range(4)), train(theirs, paddles(make, theirs), range(4)), strict=True
    ):
        assert_close(found, wanted)

"""The bfloat16 copies of weights are up to date, whatever has changed the weights."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import paddle
import pytest
from paddle import Tensor
from support.kernels.judging import needs_bf16, normal

from ernie import AdamW
from ernie.kernels.adamw import adamw
from ernie.kernels.cpu.copies import bf16_copy
from ernie.kernels.linear import linear
from ernie.kernels.precision import precision
from ernie.kernels.types import AdamStep

pytestmark = needs_bf16

NEW = normal((40, 30), seed=1)[0]
STEP = AdamStep(lr=0.01, weight_decay=0.1, beta1=0.9, beta2=0.99, epsilon=1e-8, power1=0.9, power2=0.99)


@pytest.fixture
def weight() -> Tensor:
    """A parameter that already has a bfloat16 copy."""
    parameter = paddle.create_parameter([40, 30], "float32", default_initializer=paddle.nn.initializer.Normal())
    bf16_copy(parameter)
    return parameter


def forward_and_backward(weight: Tensor) -> None:
    """Run a forward and a backward pass."""
    with precision("bf16"):
        linear(paddle.to_tensor(normal((5, 40))[0]), weight, paddle.zeros([30])).square().sum().backward()


def assert_current(weight: Tensor) -> None:
    copy, rounded = bf16_copy(weight), weight.astype("bfloat16")
    assert np.array_equal(copy.astype("float32").numpy(), rounded.astype("float32").numpy())


def as_layer(weight: Tensor) -> paddle.nn.Layer:
    layer = paddle.nn.Layer()
    layer.weight = weight
    return layer


@pytest.mark.parametrize(
    "change",
    [
        lambda weight: paddle.assign(paddle.to_tensor(NEW), weight),
        lambda weight: weight.set_value(NEW),
        lambda weight: weight.set_value(paddle.to_tensor(NEW)),
        lambda weight: weight.set_value(np.concatenate([NEW[:1], weight.numpy()[1:]])),
        lambda weight: weight.copy_(paddle.to_tensor(NEW), True),
        lambda weight: weight.copy_(paddle.to_tensor(np.concatenate([NEW[:1], weight.numpy()[1:]])), True),
        lambda weight: np.copyto(np.from_dlpack(weight.detach())[:1], NEW[:1]),
        lambda weight: weight.scale_(2.0),
        lambda weight: weight.__setitem__(0, paddle.ones([30])),
        lambda weight: as_layer(weight).set_state_dict({"weight": paddle.to_tensor(NEW)}),
    ],
    ids=[
        "assign",
        "set an array",
        "set a tensor",
        "set a part",
        "copy",
        "copy a part",
        "write a row",
        "scale",
        "set a row",
        "load a state",
    ],
)
def test_changes_by_paddle_are_detected(weight: Tensor, change: Callable[[Tensor], object]) -> None:
    before = weight.numpy()
    with paddle.no_grad():
        change(weight)
    assert not np.array_equal(weight.numpy(), before)
    assert_current(weight)


@pytest.mark.parametrize("optimizer", [paddle.optimizer.SGD, paddle.optimizer.Adam, paddle.optimizer.AdamW])
def test_steps_of_paddles_optimizers_are_detected(weight: Tensor, optimizer: type[paddle.optimizer.Optimizer]) -> None:
    steps = optimizer(learning_rate=0.1, parameters=[weight])
    for _ in range(3):
        forward_and_backward(weight)
        steps.step()
        steps.clear_grad()
        assert_current(weight)


def test_a_step_that_changes_only_one_row_is_detected(weight: Tensor) -> None:
    steps = paddle.optimizer.SGD(learning_rate=1.0, parameters=[weight])
    with precision("bf16"):
        one_row = paddle.to_tensor(np.eye(40, dtype=np.float32)[:1])
        linear(one_row, weight, paddle.zeros([30])).sum().backward()
    steps.step()
    assert_current(weight)


def test_our_optimizer_updates_the_copy_in_place(weight: Tensor) -> None:
    forward_and_backward(weight)
    moments = paddle.zeros([40, 30]), paddle.zeros([40, 30])
    address = bf16_copy(weight).data_ptr()
    for _ in range(3):
        forward_and_backward(weight)
        address = bf16_copy(weight).data_ptr()
        adamw(STEP, weight, weight.grad, *moments)
        assert_current(weight)
        assert bf16_copy(weight).data_ptr() == address


def test_steps_in_a_loop_of_ones_own_update_the_copy_in_place(weight: Tensor) -> None:
    steps = AdamW(0.1, parameters=[weight], grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0))
    for _ in range(3):
        forward_and_backward(weight)
        address = bf16_copy(weight).data_ptr()
        steps.step()
        steps.clear_grad()
        assert_current(weight)
        assert bf16_copy(weight).data_ptr() == address


def test_our_optimizer_also_updates_a_stale_copy(weight: Tensor) -> None:
    forward_and_backward(weight)
    with paddle.no_grad():
        weight.set_value(NEW)
    adamw(STEP, weight, weight.grad, paddle.zeros([40, 30]), paddle.zeros([40, 30]))
    assert_current(weight)


def test_an_unchanged_weight_keeps_its_copy(weight: Tensor) -> None:
    assert bf16_copy(weight).data_ptr() == bf16_copy(weight).data_ptr()
    with paddle.no_grad(), precision("bf16"):
        linear(paddle.ones([2, 40]), weight, paddle.zeros([30]))
    assert bf16_copy(weight) is bf16_copy(weight)

"""Sums of gradients while the backward pass goes on: what is sent when, without other processes."""

from __future__ import annotations

from typing import Any

import paddle
import pytest
from paddle import Tensor, nn

from ernie.errors import UserError
from ernie.parallel import grad_reduce
from ernie.parallel.grad_reduce import EarlySums


class Running:
    """A sum over two processes with equal gradients, which is there once it has been waited for."""

    def __init__(self, buffer: Tensor) -> None:
        self.buffer = buffer

    def wait(self) -> None:
        self.buffer.scale_(2.0)


@pytest.fixture
def layers() -> list[nn.Layer]:
    paddle.seed(0)
    return [nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)]


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch, layers: list[nn.Layer]) -> list[tuple[int, int]]:
    """Of each message: the number of its elements, and of the gradients that there were when it was sent."""
    messages: list[tuple[int, int]] = []

    def all_reduce(buffer: Tensor, group: Any, sync_op: bool) -> Running:
        assert not sync_op
        messages.append((buffer.size, sum(p.grad is not None for p in parameters(layers))))
        return Running(buffer)

    monkeypatch.setattr(grad_reduce, "all_reduce", all_reduce)
    monkeypatch.setattr(grad_reduce, "MESSAGE", 4 * (16 + 4))  # a layer's
    return messages


def parameters(layers: list[nn.Layer]) -> list[Tensor]:
    return [parameter for layer in layers for parameter in layer.parameters()]


def gradients(layers: list[nn.Layer]) -> list[Tensor]:
    return [parameter.grad.clone() for parameter in parameters(layers)]


def clear(layers: list[nn.Layer]) -> None:
    for parameter in parameters(layers):
        parameter.clear_gradient(False)


def learned(layers: list[nn.Layer], reached: list[Tensor]) -> EarlySums:
    """After a first step of a task that reaches these parameters."""
    early = EarlySums(parameters(layers), None)
    early.learn("task", reached)
    clear(layers)
    return early


def backward(layers: list[nn.Layer], used: slice = slice(None)) -> None:
    x = paddle.ones([3, 4])
    for layer in layers[used]:
        x = paddle.tanh(layer(x))
    x.sum().backward()


def test_the_last_layers_gradients_are_sent_before_the_first_layer_has_its_own(
    layers: list[nn.Layer], sent: list[tuple[int, int]]
) -> None:
    early = EarlySums(parameters(layers), None)
    backward(layers)
    alone = gradients(layers)
    early.learn("task", parameters(layers))
    assert [each.tolist() for each in gradients(layers)] == [(2 * each).tolist() for each in alone]
    clear(layers)
    backward(layers)  # a micro-batch before the last one
    assert sent == [(20, 6), (20, 4), (20, 2)]  # what was sent takes no memory
    early.begin("task")
    clear(layers)
    backward(layers)
    assert sent[3:] == [(20, 2)] * 3
    assert early.finish()
    assert [each.tolist() for each in gradients(layers)] == [(2 * each).tolist() for each in alone]
    assert not early.finish()


def test_every_process_sends_the_same_messages_though_it_lacks_a_gradient(
    layers: list[nn.Layer], sent: list[tuple[int, int]]
) -> None:
    early = learned(layers, parameters(layers))
    sent.clear()
    early.begin("task")
    backward(layers, slice(0, 2))
    assert not sent
    assert early.finish()
    assert [size for size, _ in sent] == [20, 20, 20]
    assert not layers[2].weight.grad.abs().sum()
    assert layers[0].weight.grad.abs().sum()


def test_a_task_that_is_not_known_is_left_to_the_sum_after_the_pass(
    layers: list[nn.Layer], sent: list[tuple[int, int]]
) -> None:
    early = learned(layers, parameters(layers))
    sent.clear()
    early.begin("another")
    backward(layers)
    assert not early.finish()
    assert not sent


def test_a_gradient_that_no_first_step_had_ends_the_run(layers: list[nn.Layer], sent: list[tuple[int, int]]) -> None:
    early = learned(layers, parameters(layers)[:4])
    early.begin("task")
    backward(layers)
    with pytest.raises(UserError, match=r"parallel\.overlap: task 'task' has computed a gradient of other parameters"):
        early.finish()

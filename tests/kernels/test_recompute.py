"""Recomputing each layer in the backward pass to save memory gives bit-identical results."""

from __future__ import annotations

import gc

import numpy as np
import paddle
import pytest
from paddle.base import core
from support.kernels.judging import needs_bf16, needs_kernels, normal

from ernie.data.batch import Layout
from ernie.kernels.cpu.pool import bytes_in_use
from ernie.kernels.precision import precision
from ernie.model.config import EncoderConfig
from ernie.model.encoder import Encoder

SHAPE = {"vocab_size": 50, "hidden_size": 24, "layers": 3, "heads": 2, "intermediate_size": 40, "max_positions": 64}
LAYOUT = Layout.of_lengths([7, 33, 1])


def results(dropout: float, recompute: bool, needed: np.ndarray | None) -> list[bytes]:
    """The output of an encoder, the gradients of its input and weights, and the next random number."""
    paddle.seed(1)
    encoder = Encoder(EncoderConfig(**SHAPE, dropout=dropout, attention_dropout=dropout))
    encoder.recompute = recompute
    x, upstream = map(paddle.to_tensor, normal((41, 24), (41, 24)))
    x.stop_gradient = False
    paddle.seed(2)
    y = encoder(x, LAYOUT, needed=needed)
    (y * upstream).sum().backward()
    after = paddle.rand([1])
    return [tensor.numpy().tobytes() for tensor in (y, x.grad, *(p.grad for p in encoder.parameters()), after)]


@pytest.mark.parametrize("name", ["fp32", pytest.param("bf16", marks=needs_bf16)])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("needed", [None, np.array([0, 7, 30])])
def test_recomputing_gives_the_same_bits(name, dropout: float, needed: np.ndarray | None) -> None:  # type: ignore[no-untyped-def]
    with precision(name):
        assert results(dropout, True, needed) == results(dropout, False, needed)


def activation_bytes(recompute: bool) -> int:
    """The bytes that the forward pass of twelve layers keeps for the backward pass."""
    shape = {**SHAPE, "hidden_size": 64, "intermediate_size": 256, "layers": 12}
    encoder = Encoder(EncoderConfig(**shape))
    encoder.recompute = recompute
    x = paddle.to_tensor(normal((512, 64))[0], stop_gradient=False)

    def allocated() -> int:
        return int(core.host_memory_stat_current_value("Allocated", 0)) + bytes_in_use()

    gc.collect()  # garbage of other tests, freed in between, would count
    before = allocated()
    y = encoder(x, Layout.of_lengths([64] * 8))
    after = allocated()
    y.sum().backward()
    return after - before


@needs_kernels
def test_recomputing_keeps_a_tenth_of_the_activations() -> None:  # as docs/howto/python.md says of a base encoder
    assert 0.08 < activation_bytes(True) / activation_bytes(False) < 0.12


def test_dropout_differs_from_layer_to_layer_and_from_step_to_step() -> None:
    paddle.seed(0)
    config = EncoderConfig(**{**SHAPE, "layers": 1}, dropout=0.5, attention_dropout=0.5)
    layer = Encoder(config).layers[0]
    x = paddle.to_tensor(normal((41, 24))[0])
    found = [layer(x, LAYOUT).numpy() for _ in range(3)]
    assert not any(np.allclose(found[i], found[j]) for i, j in ((0, 1), (0, 2), (1, 2)))

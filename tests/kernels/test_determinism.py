"""The same bits from run to run and with any number of threads; no memory that grows with the square of the length."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
import pytest
from judging import Found, needs_bf16, needs_kernels, normal, run
from paddle import Tensor

from ernie import runtime
from ernie.data.batch import Layout
from ernie.kernels.attention import attention
from ernie.kernels.cpu.call import loaded
from ernie.kernels.embedding import embed
from ernie.kernels.layer import LayerSettings, LayerWeights, transformer_layer
from ernie.kernels.precision import precision
from ernie.kernels.vocabulary import vocabulary_cross_entropy

pytestmark = needs_kernels

LAYOUT = Layout.of_lengths([70, 1, 150, 33, 8])
T, H, D, F, V = LAYOUT.tokens, 3, 48, 100, 500


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """The number of threads as it was, afterwards."""
    before = loaded().handle.ernie_kernels_max_threads()
    yield
    loaded().handle.ernie_kernels_threads(before)


def attended() -> Found:
    *values, upstream = normal(*[(T, D)] * 4)
    return run(lambda q, k, v: attention(q, k, v, LAYOUT, H, 0.1), values, upstream)


def transformed() -> Found:
    shapes = [(D, D)] * 4 + [(D, F), (F, D)] + [(D,)] * 4 + [(F,)] + [(D,)] * 5
    x, upstream, *weights = normal((T, D), (T, D), *shapes)
    settings = LayerSettings(H, "gelu", 1e-5, 0.1, 0.1)

    def kernel(x: Tensor, *weights: Tensor) -> Tensor:
        return transformer_layer(x, LAYOUT, LayerWeights(*weights), settings)

    return run(kernel, [x, *(weight / np.float32(7) for weight in weights)], upstream)


def embedded() -> Found:
    *values, upstream = normal((V, D), (9, D), (D,), (D,), (T, D))
    ids = [np.arange(T) * 7 % 50, np.arange(T) % 9]
    return run(lambda *given: embed(ids, given[:2], *given[2:], 1e-5, 0.1), values, upstream)


def predicted() -> Found:
    values, labels = normal((T, D), (V, D), (V,)), np.arange(T) % V
    return run(lambda *given: vocabulary_cross_entropy(*given, labels), values, 0.1)


def computed(kernel, threads: int) -> list[bytes]:  # type: ignore[no-untyped-def]
    loaded().handle.ernie_kernels_threads(threads)
    paddle.seed(3)
    return [result.tobytes() for result in kernel()]


@pytest.mark.parametrize("name", ["fp32", pytest.param("bf16", marks=needs_bf16)])
@pytest.mark.parametrize("kernel", [attended, transformed, embedded, predicted])
def test_any_number_of_threads_gives_the_same_bits_every_time(kernel, name) -> None:  # type: ignore[no-untyped-def]
    with precision(name):
        first = computed(kernel, 1)
        for threads in (1, 2, 3, 3):
            assert computed(kernel, threads) == first


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def test_the_memory_of_attention_does_not_grow_with_the_square_of_the_length() -> None:
    length = 8192
    tensors = [paddle.to_tensor(x, stop_gradient=False) for x in normal(*[(length, 16)] * 3)]
    layout = Layout.of_lengths([length])
    _forget_peak()
    before = runtime.memory("VmHWM")
    attention(*tensors, layout, 1).sum().backward()
    square = 4 * length * length  # bytes of a matrix of scores
    assert runtime.memory("VmHWM") - before < square // 8

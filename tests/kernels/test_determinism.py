"""Bit-for-bit equal results in every run with any number of threads, and memory that is not quadratic in the length."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import paddle
import pytest
from judging import Results, needs_bf16, needs_kernels, normal, run
from paddle import Tensor

from ernie import runtime
from ernie.data.batch import Layout
from ernie.kernels.attention import attention
from ernie.kernels.cpu.call import loaded
from ernie.kernels.dilated import Ends, GatedLayer, gated_stack, wavenet
from ernie.kernels.embedding import embed
from ernie.kernels.layer import LayerSettings, LayerWeights, transformer_layer
from ernie.kernels.linear import linear
from ernie.kernels.norm import add_norm
from ernie.kernels.precision import precision
from ernie.kernels.recurrent import gated_recurrent
from ernie.kernels.vocabulary import vocabulary_cross_entropy, vocabulary_logits

pytestmark = needs_kernels

LAYOUT = Layout.of_lengths([70, 1, 150, 33, 8])
T, H, D, F, V = LAYOUT.tokens, 3, 48, 100, 500


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Restore the number of threads after each test."""
    before = loaded().handle.ernie_kernels_max_threads()
    yield
    loaded().handle.ernie_kernels_threads(before)


def run_attention() -> Results:
    *values, upstream = normal(*[(T, D)] * 4)
    return run(lambda q, k, v: attention(q, k, v, LAYOUT, H, 0.1), values, upstream)


def run_layer() -> Results:
    shapes = [(D, D)] * 4 + [(D, F), (F, D)] + [(D,)] * 4 + [(F,)] + [(D,)] * 5
    x, upstream, *weights = normal((T, D), (T, D), *shapes)
    settings = LayerSettings(H, "gelu", 1e-5, 0.1, 0.1)

    def kernel(x: Tensor, *weights: Tensor) -> Tensor:
        return transformer_layer(x, LAYOUT, LayerWeights(*weights), settings)

    return run(kernel, [x, *(weight / np.float32(7) for weight in weights)], upstream)


def run_embedding() -> Results:
    *values, upstream = normal((V, D), (9, D), (D,), (D,), (T, D))
    ids = [np.arange(T) * 7 % 50, np.arange(T) % 9]
    return run(lambda *given: embed(ids, given[:2], *given[2:], 1e-5, 0.1), values, upstream)


def run_vocabulary() -> Results:
    values, labels = normal((T, D), (V, D), (V,)), np.arange(T) % V
    return run(lambda *given: vocabulary_cross_entropy(*given, labels), values, 0.1)


def run_vocabulary_logits() -> Results:
    *values, upstream = normal((T, D), (V, D), (V,), (T, V))
    return run(vocabulary_logits, values, upstream)


def run_linear_gelu() -> Results:
    *values, upstream = normal((T, D), (D, F), (F,), (T, F))
    return run(lambda *given: linear(*given, "gelu"), values, upstream)


def run_linear() -> Results:
    *values, upstream = normal((T, D), (D, F), (F,), (T, F))
    return run(linear, values, upstream)


def run_norm() -> Results:
    *values, upstream = normal((T, D), (T, D), (D,), (D,), (T, D))
    return run(lambda *given: add_norm(*given, 1e-5), values, upstream)


def run_recurrent() -> Results:
    *values, upstream = normal((T, 3 * D), (D, 3 * D), (3 * D,), (T, D))
    return run(lambda x, *weights: gated_recurrent(x, LAYOUT, *weights), values, upstream)


def run_dilated() -> Results:
    layer: list[tuple[int, ...]] = [(2 * 4 + 3, 2 * 4), (2 * 4,), (4, 5), (4, 4), (4,)]
    *values, upstream = normal((2, 9, 4), (2, 9, 3), *layer, *layer[:3], (2, 6, 5))

    def kernel(x: Tensor, conditioner: Tensor, *flat: Tensor) -> Tensor:
        return gated_stack(x, conditioner, [GatedLayer(*flat[:5]), GatedLayer(*flat[5:])], (1, 2))

    return run(kernel, values, upstream)


@paddle.no_grad()
def run_dilated_inference() -> Results:
    layer: list[tuple[int, ...]] = [(2 * 20 + 3, 2 * 20), (2 * 20,), (20, 5), (20, 20), (20,)]
    ends = ((20,), (20,), (5, 5), (5,), (5, 2), (2,))
    samples, conditioner, *weights = map(paddle.to_tensor, normal((1, 2000), (1, 2000, 3), *ends, *layer, *layer[:3]))
    layers = [GatedLayer(*weights[6:11]), GatedLayer(*weights[11:])]
    return [wavenet(samples, conditioner, Ends(*weights[:6]), layers, (1, 64)).numpy()]


def result_bytes(kernel, threads: int) -> list[bytes]:  # type: ignore[no-untyped-def]
    loaded().handle.ernie_kernels_threads(threads)
    paddle.seed(3)
    return [result.tobytes() for result in kernel()]


@pytest.mark.parametrize("name", ["fp32", pytest.param("bf16", marks=needs_bf16)])
@pytest.mark.parametrize(
    "kernel",
    [run_attention, run_layer, run_embedding, run_vocabulary, run_vocabulary_logits, run_dilated_inference],
)
def test_results_are_bit_identical_with_any_number_of_threads(kernel, name) -> None:  # type: ignore[no-untyped-def]
    with precision(name):
        first = result_bytes(kernel, 1)
        for threads in (1, 2, 3, 3):
            assert result_bytes(kernel, threads) == first


@pytest.mark.parametrize(
    "kernel",
    [
        run_attention,
        run_layer,
        run_embedding,
        run_vocabulary,
        run_vocabulary_logits,
        run_linear_gelu,
        run_linear,
        run_norm,
        run_recurrent,
        run_dilated,
    ],
)
def test_results_do_not_depend_on_paddles_default_dtype(kernel) -> None:  # type: ignore[no-untyped-def]
    wanted = result_bytes(kernel, 1)
    paddle.set_default_dtype("float64")
    try:
        assert result_bytes(kernel, 1) == wanted
    finally:
        paddle.set_default_dtype("float32")


def _reset_peak_memory() -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def test_the_memory_of_attention_is_not_quadratic_in_the_length() -> None:
    length = 8192
    tensors = [paddle.to_tensor(x, stop_gradient=False) for x in normal(*[(length, 16)] * 3)]
    layout = Layout.of_lengths([length])
    _reset_peak_memory()
    before = runtime.memory("VmHWM")
    attention(*tensors, layout, 1).sum().backward()
    square = 4 * length * length  # bytes of a matrix of scores
    assert runtime.memory("VmHWM") - before < square // 8

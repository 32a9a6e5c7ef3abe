"""Bit-for-bit equal results in every run with any number of threads, and memory that is not quadratic in the length."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import paddle
import pytest
from support.kernels.families import (
    run_attention,
    run_dilated,
    run_dilated_inference,
    run_embedding,
    run_layer,
    run_linear,
    run_linear_gelu,
    run_norm,
    run_recurrent,
    run_vocabulary,
    run_vocabulary_logits,
)
from support.kernels.judging import needs_bf16, needs_kernels, normal

from ernie import runtime
from ernie.data.batch import Layout
from ernie.kernels.attention import attention
from ernie.kernels.cpu.call import loaded
from ernie.kernels.precision import precision

pytestmark = needs_kernels


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """Restore the number of threads after each test."""
    before = loaded().handle.ernie_kernels_max_threads()
    yield
    loaded().handle.ernie_kernels_threads(before)


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

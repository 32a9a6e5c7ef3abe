"""Measured speed of matrix products and memory, compared with the peak of the cores.

Measurements alternate with those of their bound, and the best of several counts: other programs may be running.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from ctypes import byref, c_double
from dataclasses import dataclass

import paddle

from ernie.data.batch import Layout
from ernie.kernels.build import processor_flags
from ernie.kernels.cpu.call import product, to_bf16
from ernie.kernels.cpu.library import Library, library
from ernie.kernels.precision import precision, resolve
from ernie.model.config import EncoderConfig
from ernie.model.encoder import EncoderLayer

M, K, N = 2048, 768, 3072  # the first feed-forward product of 16 sequences of 128 tokens in BERT-base
_TURNS, _SECONDS = 3, 0.15
_ROUNDS = 100_000  # a third of a millisecond
_FLOATS = 1 << 26  # 256 MB, more than the caches hold


@dataclass(frozen=True)
class Rate:
    """The speed of a matrix product and its bound in GFLOP/s; `by` is the implementation, our kernels or Paddle."""

    precision: str
    by: str
    gflops: float
    bound: float | None


@dataclass(frozen=True)
class Speed:
    """The speeds of all available products; `bandwidth` is of memory reads with all threads, in GB/s.

    `layer` is the speed of a layer of BERT-base forward and backward, in tokens/s, in the best precision.
    """

    products: list[Rate]
    bandwidth: float | None
    layer: float
    precision: str


def measure() -> Speed:
    """Measure the speeds, which takes two to three seconds."""
    if paddle.get_device() != "cpu":
        types = ["float32", *(["bfloat16"] if paddle.amp.is_bfloat16_supported() else []), "float16"]
        return Speed([_on_gpu(dtype) for dtype in types], None, _layer(8192), resolve("auto"))
    kernels = library()
    runs = _products(kernels)
    fastest = dict.fromkeys(runs, math.inf)
    bounds: dict[str, float] = {}
    for _ in range(_TURNS):
        for key, run in runs.items():
            fastest[key] = min(fastest[key], _min_seconds(run))
        if kernels is not None:
            for name in {name for name, _ in runs}:
                bounds[name] = max(bounds.get(name, 0.0), _bound(name, kernels))
    if "amx_bf16" in processor_flags():  # its tile units exceed the bound, which is of the vector units
        bounds.pop("bf16", None)
    reached = {key: _gflops(seconds) for key, seconds in fastest.items()}
    for name in bounds:  # what was reached is possible, however much other programs disturbed the bound
        bounds[name] = max(bounds[name], *(rate for key, rate in reached.items() if key[0] == name))
    rates = [Rate(*key, rate, bounds.get(key[0])) for key, rate in reached.items()]
    return Speed(rates, None if kernels is None else _bandwidth(kernels), _layer(512), resolve("auto"))


def _products(kernels: Library | None) -> dict[tuple[str, str], Callable[[], object]]:
    """Return the available products by (precision, implementation)."""
    left, right = paddle.randn([M, K]), paddle.randn([K, N])
    runs: dict[tuple[str, str], Callable[[], object]] = {}
    if kernels is not None:
        runs["fp32", "kernels"] = lambda: product(left, right)
    if kernels is not None and kernels.has_bf16:
        low_left, low_right = to_bf16(left), to_bf16(right)
        runs["bf16", "kernels"] = lambda: product(low_left, low_right)
    runs["fp32", "Paddle"] = lambda: paddle.matmul(left, right)
    return runs


def _bound(name: str, kernels: Library) -> float:
    operations = c_double()
    seconds = _min_seconds(lambda: kernels.call("peak", int(name == "bf16"), _ROUNDS, byref(operations)))
    return operations.value / seconds / 1e9


def _on_gpu(dtype: str) -> Rate:
    left, right = paddle.randn([M, K]).astype(dtype), paddle.randn([K, N]).astype(dtype)

    def run() -> None:
        paddle.matmul(left, right)
        paddle.device.synchronize()

    names = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
    return Rate(names[dtype], "Paddle", _gflops(_min_seconds(run)), None)


def _layer(tokens: int) -> float:
    layout = Layout.of_lengths([128] * (tokens // 128))
    layer = EncoderLayer(EncoderConfig.preset("base"))
    x_TD = paddle.randn([tokens, K])
    x_TD.stop_gradient = False

    def run() -> None:
        with precision("auto"):
            layer(x_TD, layout).sum().backward()
        layer.clear_gradients()
        if paddle.get_device() != "cpu":
            paddle.device.synchronize()

    return tokens / _min_seconds(run)


def _bandwidth(kernels: Library) -> float:
    total = c_double()
    values = paddle.ones([_FLOATS])
    return 4e-9 * _FLOATS / _min_seconds(lambda: kernels.call("squares", values.data_ptr(), _FLOATS, byref(total)))


def _gflops(seconds: float) -> float:
    return 2e-9 * M * K * N / seconds


def _min_seconds(run: Callable[[], object]) -> float:
    """Return the minimum duration of several runs in seconds, after one warm-up run."""
    run()
    fastest, end = math.inf, time.perf_counter() + _SECONDS
    while time.perf_counter() < end or fastest == math.inf:
        start = time.perf_counter()
        run()
        fastest = min(fastest, time.perf_counter() - start)
    return fastest

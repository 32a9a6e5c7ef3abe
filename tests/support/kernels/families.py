"""One computation of every kernel, forward and backward, for tests that compare whole runs bit by bit.

Run as a program, it prints a digest of each result: `families.py [plain | thread | region]`, in the main thread, in a
thread of a pool, or inside a parallel region of OpenMP.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import paddle
from paddle import Tensor
from support.kernels.judging import Results, normal, run

from ernie.data.batch import Layout
from ernie.kernels.adamw import adamw, sum_of_squares
from ernie.kernels.attention import attention
from ernie.kernels.dilated import gated_stack, wavenet
from ernie.kernels.embedding import embed
from ernie.kernels.gru import gated_recurrent
from ernie.kernels.layer import transformer_layer
from ernie.kernels.linear import linear
from ernie.kernels.norm import add_norm
from ernie.kernels.precision import precision, resolve
from ernie.kernels.sampling import draw
from ernie.kernels.stack import TransformerStack
from ernie.kernels.types import AdamStep, GatedLayer, LayerSettings, LayerWeights, SamplingWeights, WaveNetEnds
from ernie.kernels.vocabulary import vocabulary_cross_entropy, vocabulary_logits

LAYOUT = Layout.of_lengths([70, 1, 150, 33, 8])
T, H, D, F, V = LAYOUT.tokens, 3, 48, 100, 500


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
    return [wavenet(samples, conditioner, WaveNetEnds(*weights[:6]), layers, (1, 64)).numpy()]


@paddle.no_grad()
def run_stack() -> Results:
    """A stack for inference in each precision of this machine, with few rows and with many."""
    shapes = [(D, D)] * 4 + [(D, F), (F, D)] + [(D,)] * 4 + [(F,)] + [(D,)] * 5
    x, *weights = normal((T, D), *shapes)
    layer = LayerWeights(*(paddle.to_tensor(weight / np.float32(7)) for weight in weights))
    settings = LayerSettings(H, "gelu", 1e-5, 0.0, 0.0)
    found: Results = []
    for name in dict.fromkeys(["fp32", resolve("auto"), "int8"]):
        with precision(name):  # type: ignore[arg-type]
            for rows in (None, np.array([3, 70, 100])):
                found.append(TransformerStack()(paddle.to_tensor(x), LAYOUT, [layer, layer], settings, rows).numpy())
    return found


@paddle.no_grad()
def run_adamw() -> Results:
    weight, moment1, moment2, gradient = map(paddle.to_tensor, normal(*[(40_000,)] * 4))
    weight.grad = gradient
    moments = [moment1, moment2.abs()]
    adamw(AdamStep(0.01, 0.1, 0.9, 0.98, 1e-8, 0.9, 0.98), weight, weight.grad, *moments)
    return [weight.numpy(), *(moment.numpy() for moment in moments), sum_of_squares([weight, gradient]).numpy()]


def run_sampling() -> Results:
    C, N, S, dilations = 24, 3, 12, (1, 2)
    shapes = ((2, C), (2, 2 * C, 2 * C), (2, C, 2 * C), (2, C), (C, C), (C,), (C, 2), (2,))
    weights = [weight / np.float32(np.sqrt(2 * C)) for weight in normal(*shapes)]
    conditioning, noise = normal((N, S, 2, 2 * C), (N, S))
    rows = [normal(*((dilation + S, C) for dilation in dilations)) for _ in range(N)]
    samples = np.empty((N, S), np.float32)
    draw(SamplingWeights(dilations, 0.25, *weights), rows, conditioning, np.full(N, 0.1, np.float32), noise, samples)
    return [samples, *(layer for own in rows for layer in own)]


FAMILIES: dict[str, Callable[[], Results]] = {
    name.removeprefix("run_"): kernel for name, kernel in list(globals().items()) if name.startswith("run_")
}


def digests() -> dict[str, str]:
    """A digest of the results of each family, in fp32 and in the best precision of this machine."""
    found = {}
    for name in dict.fromkeys(["fp32", resolve("auto")]):
        with precision(name):
            for family, kernel in FAMILIES.items():
                paddle.seed(3)
                content = b"".join(result.tobytes() for result in kernel() if result is not None)
                found[f"{family} in {name}"] = hashlib.sha256(content).hexdigest()
    return found


def digests_in_a_thread() -> dict[str, str]:
    """As `digests`, in a thread of a pool."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(digests).result()


def digests_in_a_region() -> dict[str, str]:
    """As `digests`, in the first thread of a parallel region, in which OpenMP grants no further threads."""
    found: dict[str, str] = {}
    in_region = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    openmp = ctypes.CDLL("libiomp5.so")  # Paddle's, which is loaded

    def body(_: object) -> None:
        if openmp.omp_get_thread_num() == 0:
            assert openmp.omp_get_num_threads() == 2
            found.update(digests())

    openmp.GOMP_parallel(in_region(body), None, 2, 0)
    return found


if __name__ == "__main__":
    places = {"plain": digests, "thread": digests_in_a_thread, "region": digests_in_a_region}
    print(json.dumps(places[sys.argv[1]]()))

"""The GPU implementations against the references in float32 on the same GPU, forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import paddle
import pytest
from paddle import Tensor
from support.kernels.judging import Results, normal, rounded

from ernie.data.batch import Layout
from ernie.kernels import gpu
from ernie.kernels.adamw import adamw, reference_sum_of_squares, sum_of_squares
from ernie.kernels.adamw import reference as adamw_reference
from ernie.kernels.attention import attention
from ernie.kernels.attention import reference as attention_reference
from ernie.kernels.layer import reference as layer_reference
from ernie.kernels.layer import transformer_layer
from ernie.kernels.linear import linear
from ernie.kernels.linear import reference as linear_reference
from ernie.kernels.mask import Mask
from ernie.kernels.norm import add_norm
from ernie.kernels.norm import reference as norm_reference
from ernie.kernels.precision import Precision, cast, precision
from ernie.kernels.types import AdamStep, LayerSettings, LayerWeights
from ernie.kernels.vocabulary import reference as vocabulary_reference
from ernie.kernels.vocabulary import vocabulary_cross_entropy, vocabulary_cross_entropy_and_samples

pytestmark = pytest.mark.usefixtures("gpu_device")
LAYOUT = Layout.of_lengths([1, 17, 130, 5, 64])
TOLERANCE = {"bf16": 0.02, "fp16": 0.003}  # of the error, relative to the norm of a result
low = pytest.mark.parametrize("kind", ["bf16", "fp16"])


def results(kernel: Callable[..., Tensor], values: Sequence[np.ndarray], frozen: Sequence[int] = ()) -> Results:
    """The output and the gradients of sum(output * upstream), None for frozen inputs."""
    tensors = [paddle.to_tensor(x, stop_gradient=number in frozen) for number, x in enumerate(values)]
    out = kernel(*tensors).astype("float32")
    upstream = np.random.default_rng(1).standard_normal(out.shape).astype(np.float32)
    (out * paddle.to_tensor(upstream)).sum().backward()
    return [out.numpy(), *(None if x.grad is None else x.grad.numpy() for x in tensors)]


def assert_near(found: Results, wanted: Results, tolerance: float, frozen: Sequence[int] = ()) -> None:
    for number, (actual, expected) in enumerate(zip(found, wanted, strict=True)):
        assert expected is not None
        if actual is None:
            assert number - 1 in frozen
            continue
        error = float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))
        assert error < tolerance, f"result {number}: {error:.5f}"


@low
@pytest.mark.parametrize(
    "mask",
    [
        None,
        Mask.causal(LAYOUT),
        Mask.window(LAYOUT, 7, 3),
        Mask.chunk(LAYOUT, 16, before=1),
        Mask.prefix(LAYOUT, np.array([0, 9, 70, 5, 1])),
    ],
    ids=["full", "causal", "window", "chunk", "prefix"],
)
@pytest.mark.parametrize("size", [64, 20], ids=["fused", "reference"])
def test_attention_in_half_precision_is_near_the_reference(kind: Precision, mask: Mask | None, size: int) -> None:
    values = normal(*[(LAYOUT.tokens, 2 * size)] * 3)
    with precision(kind):
        found = results(lambda q, k, v: attention(q, k, v, LAYOUT, 2, mask=mask), values)
    wanted = results(lambda q, k, v: attention_reference(q, k, v, LAYOUT, 2, 0.0, LAYOUT, mask), values)
    assert_near(found, wanted, TOLERANCE[kind])


@low
def test_attention_to_other_sequences_is_near_the_reference(kind: Precision) -> None:
    keys = Layout.of_lengths([3, 40, 1, 200, 64])
    values = normal((LAYOUT.tokens, 128), (keys.tokens, 128), (keys.tokens, 128))
    for mask in (None, Mask.until(LAYOUT.positions + 3)):
        with precision(kind):
            found = results(lambda q, k, v, mask=mask: attention(q, k, v, LAYOUT, 2, keys=keys, mask=mask), values)
        wanted = results(
            lambda q, k, v, mask=mask: attention_reference(q, k, v, LAYOUT, 2, 0.0, keys, mask),
            values,
        )
        assert_near(found, wanted, TOLERANCE[kind])


def test_attention_dropout_preserves_the_mean() -> None:
    paddle.seed(0)
    layout = Layout.of_lengths([64] * 50)
    q, k = (paddle.zeros([layout.tokens, 64]) for _ in range(2))
    with precision("bf16"):
        found = attention(q, k, paddle.ones_like(q), layout, 1, dropout=0.25).astype("float32").numpy()[:, 0]
    assert found.mean() == pytest.approx(1.0, abs=0.01)
    assert found.std() == pytest.approx(np.sqrt(0.25 / 0.75 / 64), rel=0.1)


@pytest.mark.parametrize("activation", ["none", "gelu", "relu"])
@pytest.mark.parametrize(("kind", "tolerance"), [("fp32", 2e-3), *TOLERANCE.items()])  # fp32 products may use TF32
def test_the_linear_kernel_is_near_the_reference(kind: Precision, tolerance: float, activation: str) -> None:
    values = rounded(normal((33, 64), (64, 96), (96,)))
    with precision(kind):
        found = results(lambda x, w, b: linear(x, w, b, activation), values)
    assert_near(found, results(lambda x, w, b: linear_reference(x, w, b, activation), values), tolerance)


@pytest.mark.parametrize(("kind", "tolerance"), [("fp32", 1e-5), *TOLERANCE.items()])
def test_residual_and_norm_are_near_the_reference(kind: Precision, tolerance: float) -> None:
    values = normal((33, 64), (33, 64), (64,), (64,))
    with precision(kind):
        found = results(lambda *x: add_norm(*x, 1e-5), values)
    assert_near(found, results(lambda *x: norm_reference(*x, 1e-5, 0.0), values), tolerance)


@low
def test_level_o2_returns_half_precision_but_keeps_float32_gradients(kind: Precision) -> None:
    x, y, gain, offset = (paddle.to_tensor(value, stop_gradient=False) for value in normal((5, 8), (5, 8), (8,), (8,)))
    with precision(kind, "O1"):
        assert add_norm(x, y, gain, offset, 1e-5).dtype == paddle.float32
    with precision(kind, "O2"):
        out = add_norm(x, y, gain, offset, 1e-5)
        assert out.dtype == cast(x).dtype != paddle.float32
    out.astype("float32").sum().backward()
    assert gain.grad.dtype == paddle.float32


@low
@pytest.mark.parametrize("frozen", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
def test_frozen_inputs_of_the_linear_kernel_leave_the_other_gradients(kind: Precision, frozen: tuple[int, ...]) -> None:
    values = normal((33, 64), (64, 96), (96,))
    with precision(kind):
        found = results(lambda x, w, b: linear(x, w, b, "gelu"), values, frozen)
    assert_near(found, results(lambda x, w, b: linear_reference(x, w, b, "gelu"), values), TOLERANCE[kind], frozen)


@pytest.mark.parametrize("frozen", [(0,), (1,), (2,), (3,), (2, 3), (0, 2), (1, 2, 3), (0, 1)])
@pytest.mark.parametrize("width", [64, 1024])  # the operator has a kernel of its own for 1024
def test_frozen_inputs_of_the_norm_kernel_leave_the_other_gradients(width: int, frozen: tuple[int, ...]) -> None:
    values = normal((33, width), (33, width), (width,), (width,))
    found = results(lambda *x: add_norm(*x, 1e-5), values, frozen)
    assert_near(found, results(lambda *x: norm_reference(*x, 1e-5, 0.0), values), 1e-5, frozen)


@low
@pytest.mark.parametrize("rows", [None, np.array([0, 3, 40, 216]), np.zeros(0, np.int64)], ids=["all", "some", "none"])
def test_a_layer_in_half_precision_is_near_the_reference(kind: Precision, rows: np.ndarray | None) -> None:
    shapes = [(128, 128)] * 4 + [(128, 256), (256, 128)] + [(128,)] * 4 + [(256,)] + [(128,)] * 5
    x, *weights = normal((LAYOUT.tokens, 128), *shapes)
    values = [x, *(weight / np.float32(11) for weight in weights)]
    settings = LayerSettings(2, "gelu", 1e-5)

    def layer(body: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda x, *weights: body(x, LAYOUT, LayerWeights(*weights), settings, None, rows)

    with precision(kind):
        found = results(layer(transformer_layer), values)
    wanted = results(layer(layer_reference), values)
    for actual, expected in zip(found, wanted, strict=True):
        error = np.linalg.norm(actual - expected)  # type: ignore[operator]
        assert error <= 2 * TOLERANCE[kind] * (1 + np.linalg.norm(expected))  # type: ignore[arg-type]; the keys' bias has none


@low
@pytest.mark.parametrize("frozen", [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
@pytest.mark.parametrize("rows", [300, 64], ids=["whole", "parts"])
def test_the_loss_of_a_vocabulary_in_half_precision_is_near_the_reference(
    kind: Precision, frozen: tuple[int, ...], rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu.vocabulary, "_ROWS", rows)
    x, table, bias = normal((300, 32), (90, 32), (90,))
    values, labels = [x, table / np.float32(6), bias], np.arange(300) % 90
    with precision(kind):
        found = results(lambda *x: vocabulary_cross_entropy(*x, labels), values, frozen)
    wanted = results(lambda *x: vocabulary_reference(*x, labels), values)
    assert_near(found, wanted, TOLERANCE[kind], frozen)


@low
@pytest.mark.parametrize("rows", [300, 64], ids=["whole", "parts"])
@pytest.mark.parametrize("learns", [True, False])
def test_classes_are_drawn_part_by_part(
    kind: Precision, learns: bool, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu.vocabulary, "_ROWS", rows)
    tensors = [paddle.to_tensor(value, stop_gradient=not learns) for value in normal((300, 32), (90, 32), (90,))]
    tensors[2] = paddle.where(paddle.arange(90) % 30 == 7, 300.0, 0.0)  # three classes have nearly all of the share
    draws = (np.arange(300) % 3 + 0.5) / 3
    with precision(kind):
        _, found = vocabulary_cross_entropy_and_samples(tensors[0] / 100, *tensors[1:], np.arange(300) % 90, draws)
    assert np.array_equal(found, np.tile([7, 37, 67], 100))


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_updates_are_those_of_the_reference(scale: float) -> None:
    start = normal((40, 30), (40, 30), (40, 30))
    weights = []
    for body in (adamw, adamw_reference):
        weight, gradient, moment1 = map(paddle.to_tensor, start)
        moment2 = paddle.zeros_like(moment1)
        for taken in range(1, 4):
            step = AdamStep(0.01, 0.1, 0.9, 0.98, 1e-8, 0.9**taken, 0.98**taken, scale)
            body(step, weight, gradient.clone(), moment1, moment2)
        weights.append([weight.numpy(), moment1.numpy(), moment2.numpy()])
    for found, wanted in zip(*weights, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_the_sum_of_squares_is_that_of_the_reference() -> None:
    tensors = [paddle.to_tensor(value) for value in normal((300, 70), (5,))]
    assert float(sum_of_squares(tensors)) == pytest.approx(float(reference_sum_of_squares(tensors)), rel=1e-5)
    for value in (np.inf, np.nan):
        assert not np.isfinite(float(sum_of_squares([*tensors, paddle.full([3], value)])))

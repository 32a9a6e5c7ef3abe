"""The convolutions between the layers of a speech encoder: what they compute, and how far they see."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import paddle
import pytest
from support.recognizers import model

from ernie.audio.recurrent_config import RecurrentConfig
from ernie.data.batch import Layout
from ernie.errors import UserError
from ernie.kernels.mask import Mask
from ernie.kernels.precision import precision
from ernie.model.config import EncoderConfig
from ernie.model.convolution import Convolution
from ernie.model.inference import evaluating
from ernie.model.initialization import initialize
from tasks.downstream.transcribe import Transcribe

LAYOUT = Layout.of_lengths([7, 2, 9])
KERNEL, REACH, WIDTH = 5, 2, 32


@pytest.fixture(autouse=True)
def full_precision():
    with precision("fp32"):
        yield


def normalized(x: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def vectors(seed: int = 0, tokens: int = LAYOUT.tokens) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((tokens, WIDTH)).astype(np.float32)


def test_a_convolution_is_gated_depthwise_and_beside_a_residual() -> None:
    paddle.seed(0)
    module = Convolution(replace(EncoderConfig.preset("tiny"), hidden_size=WIDTH, dropout=0.0), KERNEL)
    initialize(module, 0.5)
    x = vectors(tokens=6)
    rows = np.arange(6)[:, None] + np.arange(-REACH, REACH + 1)
    rows = np.where((rows >= 0) & (rows < 6), rows, 6)
    with paddle.no_grad():
        found = module.outputs(paddle.to_tensor(x), module.inputs(paddle.to_tensor(x)), rows).numpy()
    expanded = normalized(x.astype(np.float64)) @ module.gated.weight.numpy()
    inputs = expanded[:, :WIDTH] * sigmoid(expanded[:, WIDTH:])
    padded, kernel = np.pad(inputs, ((REACH, REACH), (0, 0))), module.depth.numpy()
    convolved = normalized(np.array([(padded[t : t + KERNEL] * kernel).sum(0) for t in range(6)]))
    expected = x + (convolved * sigmoid(convolved)) @ module.out.weight.numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


def encoded(x: np.ndarray, mask: Mask | None = None) -> np.ndarray:
    ernie, head = model(kind="convolution")
    with evaluating(ernie), evaluating(head):
        return head.encoder(ernie)(paddle.to_tensor(x), LAYOUT, mask=mask).numpy()


def test_a_sound_is_encoded_as_if_it_were_alone() -> None:
    ernie, head = model(kind="convolution")
    x = vectors()
    together = encoded(x)
    with evaluating(ernie), evaluating(head):
        for first, last in zip(LAYOUT.starts, LAYOUT.offsets[1:], strict=True):
            own = Layout.of_lengths([last - first])
            alone = head.encoder(ernie)(paddle.to_tensor(x[first:last]), own).numpy()
            np.testing.assert_allclose(together[first:last], alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("size", "before"), [(2, 0), (3, 1)])
def test_in_chunks_no_vector_sees_a_later_chunk_nor_one_that_attention_does_not_see(size: int, before: int) -> None:
    mask, x = Mask.chunk(LAYOUT, size, before), vectors()
    layers = model(kind="convolution")[0].config.layers
    plain = encoded(x, mask)
    for changed in range(7):  # of the first sound
        other = x.copy()
        other[changed] += 1.0
        differs = np.flatnonzero((encoded(other, mask) != plain).any(1))
        chunks = differs // size
        assert changed in differs
        assert differs.max() < 7
        assert chunks.min() >= changed // size
        assert chunks.max() <= changed // size + layers * before


def test_without_chunks_a_convolution_changes_what_attention_alone_gives_and_all_its_weights_learn() -> None:
    ernie, head = model(kind="convolution")
    x = paddle.to_tensor(vectors())
    with evaluating(ernie):
        assert (encoded(vectors()) != ernie.encoder(x, LAYOUT).numpy()).any()
    head.encoder(ernie)(x, LAYOUT).square().sum().backward()
    for name, weight in head.convolutions.named_parameters():
        assert weight.grad is not None, name
        assert float(weight.grad.abs().sum()) > 0, name
    for weight in (*ernie.parameters(), *head.parameters()):
        weight.clear_grad()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"convolution": 4}, "convolution: expected an odd number of vectors, found 4"),
        ({"convolution": -1}, "convolution: expected at least 0, found -1"),
        ({"convolution": 5, "recurrent": {}}, "convolution: follows the encoder's layers, which recurrent replaces"),
    ],
)
def test_kernels_that_have_no_middle_or_no_layers_are_refused(changes: dict, message: str) -> None:
    given = {key: RecurrentConfig() if key == "recurrent" else value for key, value in changes.items()}
    with pytest.raises(UserError, match=message):
        Transcribe(**given)

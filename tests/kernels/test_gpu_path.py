"""What the library asks of a GPU, played by a CPU: where fused operators compute, and where they must not."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import Tensor
from support.fake_gpu import HALF, FakeGpu, fake_gpu, noting_types
from support.kernels.definitions import attention_definition, visible
from support.kernels.judging import Results, assert_close, assert_only_frozen_lack_gradients, normal
from support.operators import counted_operators

from ernie.data.batch import Layout
from ernie.kernels import gpu
from ernie.kernels.attention import attention
from ernie.kernels.attention import reference as attention_reference
from ernie.kernels.layer_norm import layer_norm
from ernie.kernels.linear import linear
from ernie.kernels.linear import reference as linear_reference
from ernie.kernels.mask import Mask
from ernie.kernels.norm import add_norm
from ernie.kernels.norm import reference as norm_reference
from ernie.kernels.precision import Precision, precision, resolve
from ernie.kernels.vocabulary import vocabulary_cross_entropy
from ernie.model.losses import Loss, cross_entropy, distillation, focal_cross_entropy, squared_error

LAYOUT = Layout.of_lengths([3, 1, 5])
KEYS = Layout.of_lengths([2, 4, 1])


@pytest.fixture
def device() -> Iterator[FakeGpu]:
    with fake_gpu() as made:
        yield made


def results(kernel: Callable[..., Tensor], values: list[np.ndarray], frozen: tuple[int, ...] = ()) -> Results:
    """The output and the gradients of the sum of its squares, None for frozen inputs."""
    tensors = [paddle.to_tensor(x, stop_gradient=number in frozen) for number, x in enumerate(values)]
    out = kernel(*tensors).astype("float32")
    (out * out).sum().backward()
    return [out.numpy(), *(None if x.grad is None else x.grad.numpy() for x in tensors)]


@pytest.mark.parametrize(
    ("mask", "operator"),
    [
        (None, "flash_attn_unpadded"),
        (Mask.causal(LAYOUT), "flash_attn_unpadded"),
        (Mask.window(LAYOUT, 1, 2), "flashmask_attention"),
        (Mask.until(LAYOUT.positions), None),
    ],
    ids=["full", "causal", "window", "of nothing"],
)
def test_attention_in_half_precision_takes_the_operator_of_its_mask(
    device: FakeGpu, mask: Mask | None, operator: str | None
) -> None:
    values = normal(*[(LAYOUT.tokens, 16)] * 3)
    with precision("bf16"):
        found = results(lambda q, k, v: attention(q, k, v, LAYOUT, 2, mask=mask), values)
    assert dict(device.launches) == ({operator: 1} if operator else {})
    assert_close(found, results(lambda q, k, v: attention_reference(q, k, v, LAYOUT, 2, 0.0, LAYOUT, mask), values))


@pytest.mark.parametrize("kind", ["fp32", "fp16"])
def test_attention_before_ampere_is_the_reference(kind: Precision) -> None:
    values = normal(*[(LAYOUT.tokens, 16)] * 3)
    with fake_gpu(capability=(7, 5)) as device, precision(kind):
        results(lambda q, k, v: attention(q, k, v, LAYOUT, 2), values)
        assert not device.launches


def test_before_ampere_the_best_precision_is_float32() -> None:
    with fake_gpu(capability=(7, 5)):
        assert resolve("auto") == "fp32"


def test_flash_attention_3_is_not_asked_for_dropout_with_a_mask() -> None:
    q, k, v = (paddle.to_tensor(value) for value in normal(*[(LAYOUT.tokens, 16)] * 3))
    with fake_gpu(flash_attention=3) as device, precision("bf16"):
        for mask, dropout in ((Mask.window(LAYOUT, 1, 2), 0.1), (Mask.window(LAYOUT, 1, 2), 0.0), (None, 0.1)):
            attention(q, k, v, LAYOUT, 2, dropout, mask=mask)
    assert dict(device.launches) == {"flashmask_attention": 1, "flash_attn_unpadded": 1}


def test_the_bias_of_the_reference_is_made_on_the_device_from_the_ends_of_intervals(device: FakeGpu) -> None:
    layout = Layout.of_lengths([50, 3])
    values = normal(*[(layout.tokens, 16)] * 3)
    for mask in (None, Mask.window(layout, 4, 2)):
        q, k, v = map(paddle.to_tensor, values)
        device.forget()
        found = attention(q, k, v, layout, 2, mask=mask)
        assert max(device.uploads) <= 8 * layout.sequences * layout.longest
        wanted = attention_definition(q, k, v, visible(layout, mask=mask), 2)
        assert_close([found.numpy()], [wanted.numpy()])


def test_layers_of_a_decoder_make_the_biases_of_both_attentions_once(device: FakeGpu) -> None:
    q, k = paddle.zeros([LAYOUT.tokens, 16]), paddle.zeros([KEYS.tokens, 16])
    window, waiting = Mask.window(LAYOUT, 1, 2), Mask.until(LAYOUT.positions + 1)
    counts = []
    for _ in range(3):
        device.forget()
        with precision("bf16"):
            attention(q, q, q, LAYOUT, 2, mask=window)
            attention(q, k, k, LAYOUT, 2, keys=KEYS, mask=waiting)
        counts.append(len(device.uploads))
    assert counts[1] == counts[2] < counts[0]


@pytest.mark.parametrize("frozen", [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
@pytest.mark.parametrize("kind", ["fp32", "bf16"])
def test_frozen_inputs_of_a_linear_layer_keep_the_gradients_of_the_others(
    device: FakeGpu, kind: Precision, frozen: tuple[int, ...]
) -> None:
    values = normal((5, 8), (8, 6), (6,))
    with precision(kind):
        found = results(lambda *x: linear(*x, "gelu"), values, frozen)
    wanted = results(lambda *x: linear_reference(*x, "gelu"), values)
    assert_only_frozen_lack_gradients(found, wanted, frozen)
    assert device.launches["fused_matmul_bias"] == 1
    assert device.launches["fused_linear_param_grad_add"] == (kind == "bf16" and 1 not in frozen)


@pytest.mark.parametrize("frozen", [(), (0,), (1,), (2,), (2, 3), (0, 2), (1, 2, 3), (0, 1)])
@pytest.mark.parametrize("kind", ["fp32", "bf16"])
def test_frozen_inputs_of_a_norm_keep_the_gradients_of_the_others(
    device: FakeGpu, kind: Precision, frozen: tuple[int, ...]
) -> None:
    values = normal((5, 8), (5, 8), (8,), (8,))
    with precision(kind):
        found = results(lambda *x: add_norm(*x, 1e-5), values, frozen)
    wanted = results(lambda *x: norm_reference(*x, 1e-5, 0.0), values)
    assert_only_frozen_lack_gradients(found, wanted, frozen)
    assert device.launches["fused_bias_dropout_residual_layer_norm"] == (0 not in frozen and 1 not in frozen)


def test_without_gradients_frozen_inputs_are_computed_by_the_fused_operators(device: FakeGpu) -> None:
    x, y, gain, offset = map(paddle.to_tensor, normal((5, 8), (5, 8), (8,), (8,)))
    offset.stop_gradient = False
    with paddle.no_grad():
        add_norm(x, y, gain, offset, 1e-5)
        linear(x, paddle.ones([8, 8]), offset)
    assert dict(device.launches) == {"fused_bias_dropout_residual_layer_norm": 1, "fused_matmul_bias": 1}


LABELS = np.array([0, 2, 1, 1, 0])
LOSSES: dict[str, Callable[[Tensor], Tensor | Loss]] = {
    "cross entropy": lambda logits: cross_entropy(logits, LABELS),
    "focal": lambda logits: focal_cross_entropy(logits, np.eye(3)[LABELS], 2.0),
    "distillation": lambda logits: distillation(logits, logits.detach() * 2, 3.0),
    "squared error": lambda logits: squared_error(logits[:, :1], LABELS),
}


@pytest.mark.parametrize("name", LOSSES)
def test_the_loss_of_logits_in_half_precision_is_float32(device: FakeGpu, name: str) -> None:
    with precision("bf16", "O2"):
        logits = paddle.nn.Linear(8, 3)(paddle.to_tensor(normal((5, 8))[0]))
        assert logits.dtype != paddle.float32
        loss = LOSSES[name](logits)
    assert (loss.total if isinstance(loss, Loss) else loss).dtype == paddle.float32
    assert not isinstance(loss, Loss) or loss.logits is None or loss.logits.dtype == paddle.float32


def test_norms_softmax_and_the_loss_of_a_vocabulary_are_float32_at_level_o2(device: FakeGpu) -> None:
    x, table, gain, offset, bias = map(paddle.to_tensor, normal((9, 16), (7, 16), (16,), (16,), (7,)))
    seen: list[object] = []
    with pytest.MonkeyPatch.context() as patch, precision("bf16", "O2"):
        for name in ("softmax", "layer_norm", "cross_entropy"):
            patch.setattr(F, name, noting_types(seen, getattr(F, name)))
        assert layer_norm(x.astype(HALF), gain, offset, 1e-5).dtype == paddle.float32
        attention(x, x, x, LAYOUT, 2, mask=Mask.until(LAYOUT.positions))
        assert vocabulary_cross_entropy(x, table, bias, np.arange(9) % 7).dtype == paddle.float32
    assert seen == [paddle.float32] * 3


def test_the_loss_of_a_vocabulary_keeps_no_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu.vocabulary, "_ROWS", 4)
    with counted_operators() as (_, operators), precision("bf16"):
        x, table, bias = map(paddle.to_tensor, normal((90, 8), (70, 8), (70,)))
        table.stop_gradient = False
        operators.largest = 0
        loss = vocabulary_cross_entropy(x, table, bias, np.arange(90) % 70)
        loss.backward()
        assert operators.largest == max(90 * 8, 70 * 8)

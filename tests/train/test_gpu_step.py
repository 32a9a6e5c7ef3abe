"""A training step of an encoder on a GPU played by a CPU: its numbers, and what it asks of the device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from support.fake_gpu import HALF, fake_gpu, noting_types

from ernie.data.batch import Labels, Packed, pack
from ernie.data.document import Sample
from ernie.kernels.precision import Level, Precision, precision
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.model.heads import MaskedTokenHead, SequenceHead
from ernie.model.losses import Loss, cross_entropy
from ernie.train.adam_config import AdamConfig
from ernie.train.loss_scale import LossScale
from ernie.train.trainer import StepReport, Trainer

LAYERS = 2
SHAPE = EncoderConfig(
    vocab_size=40, hidden_size=16, layers=LAYERS, heads=2, intermediate_size=32, max_positions=16, dropout=0.0
)
LABELS = np.array([0, 1, 1])


def micro_batch(seed: int) -> Packed:
    rng = np.random.default_rng(seed)
    samples = [Sample(rng.integers(5, 40, tokens), np.zeros(tokens, np.int64)) for tokens in (7, 1, 12)]
    return replace(pack(samples), labels={"label": Labels(LABELS, None)})


class Run:
    """A classifier of two layers and its trainer."""

    def __init__(
        self,
        frozen: tuple[tuple[str, ...], tuple[str, ...]] = ((), ()),
        kind: Precision = "bf16",
        level: Level = "O1",
    ) -> None:
        paddle.seed(0)
        self.precision = kind, level
        self.model = ErnieModel(replace(SHAPE, attention_dropout=0.0))
        self.model.head = SequenceHead(self.model, 2)
        for name, parameter in self.model.named_parameters():
            parameter.stop_gradient = name.startswith(frozen[0]) and name.endswith(frozen[1])
        scale = LossScale() if kind == "fp16" else None
        self.trainer = Trainer(self.model, AdamConfig(), clip=1.0, max_bad_steps=3, seed=0, loss_scale=scale)

    def loss(self, _: str, batch: Packed) -> Loss:
        return cross_entropy(self.model.head(self.model.encode_packed(batch), batch.layout), LABELS)

    def steps(self, steps: range, micro_batches: int = 1) -> list[float]:
        with precision(*self.precision):
            return [
                self.trainer.step(
                    step, [("task", micro_batch(step + 10 * n)) for n in range(micro_batches)], self.loss, 1e-2
                ).losses["task"]
                for step in steps
            ]

    def weights(self) -> dict[str, np.ndarray]:
        return {name: parameter.numpy().copy() for name, parameter in self.model.named_parameters()}


# By the beginnings and ends of the names of parameters.
FROZEN = {
    "embeddings": (("embedding.",), ("",)),
    "embeddings and a layer": (("embedding.", "encoder.layers.0."), ("",)),
    "a layer in the middle of training ones": (("encoder.layers.0.",), ("",)),
    "all but biases": (("",), (".weight",)),
    "all but the head": (("embedding.", "encoder.", "pooler."), ("",)),
}


@pytest.mark.parametrize(("kind", "level"), [("fp32", "O1"), ("bf16", "O1"), ("bf16", "O2"), ("fp16", "O2")])
def test_an_encoder_trains_as_on_a_cpu_in_every_precision(kind: Precision, level: Level) -> None:
    on_cpu = Run(kind="fp32")
    wanted = on_cpu.steps(range(3))
    with fake_gpu():
        run = Run(kind=kind, level=level)
        assert run.steps(range(3)) == pytest.approx(wanted, rel=1e-4)
        found = run.weights()
        assert all(parameter.dtype == paddle.float32 for parameter in run.model.parameters())
    for name, values in on_cpu.weights().items():
        np.testing.assert_allclose(found[name], values, atol=1e-3, err_msg=name)


@pytest.mark.parametrize("name", FROZEN)
def test_with_frozen_parameters_the_others_train_as_on_a_cpu(name: str) -> None:
    on_cpu = Run(FROZEN[name], "fp32")
    wanted = on_cpu.steps(range(2))
    with fake_gpu():
        run = Run(FROZEN[name])
        assert run.steps(range(2)) == pytest.approx(wanted, rel=1e-4)
        found = run.weights()
    before = Run().weights()
    for key, values in on_cpu.weights().items():
        np.testing.assert_allclose(found[key], values, atol=1e-3, err_msg=key)
        is_frozen = key.startswith(FROZEN[name][0]) and key.endswith(FROZEN[name][1])
        assert not is_frozen or np.array_equal(found[key], before[key])


@pytest.mark.parametrize("micro_batches", [1, 3])
def test_a_step_asks_for_so_many_copies_and_fused_operators(micro_batches: int) -> None:
    with fake_gpu() as device:
        run = Run()
        run.steps(range(1))  # whatever is made once
        device.forget()
        run.steps(range(1, 2), micro_batches)
    assert len(device.uploads) == 1  # all arrays of whole numbers, of all micro-batches
    assert len(device.downloads) == 1  # the losses and the norm of the gradients
    assert device.launches == {
        "flash_attn_unpadded": LAYERS * micro_batches,
        "fused_matmul_bias": 4 * LAYERS * micro_batches,  # queries, keys and values are one
        "fused_linear_param_grad_add": 4 * LAYERS * micro_batches,
        "fused_bias_dropout_residual_layer_norm": 2 * LAYERS * micro_batches,
    }


class TwoTasks(Run):
    """With a head for masked tokens as well, of which only some micro-batches make use."""

    def __init__(self, kind: Precision) -> None:
        super().__init__(kind=kind)
        self.model.words = MaskedTokenHead(self.model)
        self.trainer = Trainer(self.model, AdamConfig(), clip=1.0, max_bad_steps=3, seed=0)

    def loss(self, name: str, batch: Packed) -> Loss:
        if name == "task":
            return super().loss(name, batch)
        return self.model.words.loss(self.model.encode_packed(batch), np.arange(3), LABELS)

    def mixed_steps(self, order: list[str]) -> list[dict[str, float]]:
        with precision(self.precision[0]):
            return [
                self.trainer.step(
                    step, [(name, micro_batch(n)) for n, name in enumerate(order)], self.loss, 1e-2
                ).losses
                for step in range(2)
            ]


@pytest.mark.parametrize("kind", ["fp32", "bf16"])
@pytest.mark.parametrize("order", [["task"] * 3, ["words", "words", "task"], ["task", "words", "task"]], ids="".join)
def test_gradients_of_several_micro_batches_add_up_as_on_a_cpu(kind: Precision, order: list[str]) -> None:
    on_cpu = TwoTasks("fp32")
    wanted = on_cpu.mixed_steps(order)
    with fake_gpu():
        run = TwoTasks(kind)
        for found, losses in zip(run.mixed_steps(order), wanted, strict=True):
            assert found == pytest.approx(losses, rel=1e-4)
        weights = run.weights()
    for name, values in on_cpu.weights().items():
        np.testing.assert_allclose(weights[name], values, atol=1e-3, err_msg=name)


def test_a_run_that_goes_on_from_its_state_takes_the_same_steps() -> None:
    with fake_gpu():
        whole, first, second = Run(), Run(), Run()
        wanted = whole.steps(range(4))
        assert first.steps(range(2)) == wanted[:2]
        for name, parameter in second.model.named_parameters():
            parameter.set_value(first.weights()[name])
        second.trainer.set_state(first.trainer.state())
        assert second.steps(range(2, 4)) == wanted[2:]
        for name, values in whole.weights().items():
            np.testing.assert_array_equal(second.weights()[name], values)


def test_at_level_o2_gradients_and_their_sums_are_float32() -> None:
    sums: list[object] = []
    gradients: set[object] = set()
    with fake_gpu(), pytest.MonkeyPatch.context() as patch, precision("bf16", "O2"):
        run = Run(level="O2")

        def note(_: StepReport) -> None:
            gradients.update(parameter.grad.dtype for parameter in run.model.parameters() if parameter.grad is not None)

        patch.setattr(paddle._C_ops, "squared_l2_norm", noting_types(sums, paddle._C_ops.squared_l2_norm))
        run.trainer.step(0, [("task", micro_batch(0))], run.loss, 1e-2, reduced=note)
    assert gradients == set(sums) == {paddle.float32}


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_recomputed_layers_take_the_same_steps(level: Level) -> None:
    with fake_gpu():
        stored, recomputed = Run(level=level), Run(level=level)
        recomputed.model.gradient_checkpointing_enable()
        assert recomputed.steps(range(3), 2) == stored.steps(range(3), 2)
        for name, values in stored.weights().items():
            np.testing.assert_array_equal(recomputed.weights()[name], values, err_msg=name)


def test_weights_that_change_between_steps_are_taken_as_they_are_then() -> None:
    with fake_gpu():
        run, other = Run(), Run()
        for each in (run, other):
            each.steps(range(1))
        for parameter in run.model.parameters():
            parameter.set_value(parameter * 2)
        assert run.steps(range(1, 2)) != other.steps(range(1, 2))


def test_the_head_of_masked_tokens_computes_its_norm_and_loss_in_float32_at_level_o2() -> None:
    norms: list[object] = []
    with fake_gpu(), precision("bf16", "O2"), pytest.MonkeyPatch.context() as patch:
        head = MaskedTokenHead(ErnieModel(SHAPE))
        for owner in (F, paddle.nn.layer.norm):
            patch.setattr(owner, "layer_norm", noting_types(norms, owner.layer_norm))
        total = head.loss(paddle.randn([20, SHAPE.hidden_size]).astype(HALF), np.arange(3), np.arange(3)).total
    assert [*norms, total.dtype] == [paddle.float32] * 2

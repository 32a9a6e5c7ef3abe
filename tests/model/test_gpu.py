"""The encoder on a GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import paddle
import pytest

from ernie.data.batch import Labels, Packed, pack
from ernie.data.document import Sample
from ernie.kernels.precision import Level, Precision, precision
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.model.heads import SequenceHead
from ernie.model.losses import Loss, cross_entropy
from ernie.train.adam_config import AdamConfig
from ernie.train.loss_scale import LossScale
from ernie.train.trainer import Trainer


@pytest.mark.gpu
def test_a_gpu_encodes_like_a_cpu() -> None:
    rng = np.random.default_rng(0)
    samples = [Sample(rng.integers(5, 100, n), np.zeros(n, np.int64)) for n in (7, 1, 30)]
    shape = EncoderConfig(vocab_size=100, hidden_size=64, layers=2, heads=4, intermediate_size=128, max_positions=32)
    hidden = {}
    weights = None
    for device in ("cpu", "gpu"):
        paddle.set_device(device)
        model = ErnieModel(shape)
        model.eval()
        weights = weights or {name: value.numpy() for name, value in model.state_dict().items()}
        model.set_state_dict(weights)
        hidden[device] = model.encode_packed(pack(samples)).numpy()
    np.testing.assert_allclose(hidden["gpu"], hidden["cpu"], rtol=1e-3, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("kind", "level"), [("fp32", "O1"), ("bf16", "O1"), ("bf16", "O2"), ("fp16", "O1"), ("fp16", "O2")]
)
def test_an_encoder_trains_on_a_gpu_in_every_precision_with_float32_weights(kind: Precision, level: Level) -> None:
    paddle.set_device("gpu")
    paddle.seed(0)
    rng = np.random.default_rng(0)
    labels = rng.integers(2, size=32)
    rows = [np.array([1, 5 + label, *rng.integers(7, 100, 12)]) for label in labels]
    batch = pack([Sample(ids, np.zeros(14, np.int64)) for ids in rows])
    batch = replace(batch, labels={"label": Labels(labels, None)})
    shape = EncoderConfig(vocab_size=100, hidden_size=128, layers=2, heads=2, intermediate_size=256, max_positions=32)
    model = ErnieModel(shape)
    model.head = SequenceHead(model, 2)
    scale = LossScale() if kind == "fp16" else None
    trainer = Trainer(model, AdamConfig(), clip=1.0, max_bad_steps=3, seed=0, loss_scale=scale)

    def loss(_: str, batch: Packed) -> Loss:
        return cross_entropy(model.head(model.encode_packed(batch), batch.layout), labels)

    with precision(kind, level):
        losses = [trainer.step(step, [("task", batch)], loss, 1e-3).losses["task"] for step in range(40)]
    assert losses[-1] < 0.2 < losses[0]
    assert all(parameter.dtype == paddle.float32 for parameter in model.parameters())

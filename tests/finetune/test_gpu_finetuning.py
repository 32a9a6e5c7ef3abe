"""Fine-tuning of every kind on a GPU that a CPU plays, compared with the CPU itself."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import paddle
import pytest
from support.fake_gpu import fake_gpu
from support.toys import TOKENIZER, TOYS, tiny_encoder
from support.trained import streaming

from ernie.data.labeled.read import Split
from ernie.kernels.precision import Level, Precision, precision
from ernie.train.adapter_config import AdapterConfig
from ernie.train.adversarial_config import AdversarialConfig
from ernie.train.lr_schedule import LRScheduleConfig
from finetune.config import TrainConfig
from finetune.prepare import prepare
from finetune.train.loop import finetune

Weights = dict[str, np.ndarray]
TRAIN: dict[str, dict[str, Any]] = {
    "all": {},
    "frozen embeddings": {"freeze": "embeddings"},
    "a frozen layer": {"freeze": 1},
    "a frozen encoder": {"freeze": "encoder"},
    "low-rank updates": {"adapt": AdapterConfig(rank=2, targets=("query", "outer"))},
    "moved embeddings": {"adversarial": AdversarialConfig(epsilon=0.5)},
    "averages and micro-batches": {"ema": 0.5, "micro_batch_tokens": 8},
}


def trained(kind: str, name: str) -> Weights:
    """The weights of the toy of a kind after two steps, which are scored."""
    toy = streaming() if kind == "streaming" else TOYS[kind]
    paddle.seed(0)
    parts = (("train", 8, 0), ("dev", 1, 1))
    train, dev = (prepare(toy.task, Split(part, toy.rows(rows, seed)), TOKENIZER) for part, rows, seed in parts)
    settings = TrainConfig(epochs=1, batch=4, dropout=0.0, lr=LRScheduleConfig(peak=4e-3), **TRAIN[name])
    model, _ = finetune(tiny_encoder(), toy.task, train, dev, settings)
    return {key: parameter.numpy().copy() for key, parameter in model.named_parameters()}


on_cpu = cache(trained)


def assert_trains_as_on_a_cpu(kind: str, name: str, number: Precision, level: Level) -> None:
    with precision("fp32"):
        wanted = on_cpu(kind, name)
    with fake_gpu() as device, precision(number, level):
        found = trained(kind, name)
    assert device.launches["fused_matmul_bias"]
    assert found.keys() == wanted.keys()
    for key, values in wanted.items():
        np.testing.assert_allclose(found[key], values, atol=5e-4, err_msg=key)


@pytest.mark.parametrize("kind", [*TOYS, "streaming"])
def test_every_kind_trains_on_a_gpu_as_on_a_cpu(kind: str) -> None:
    assert_trains_as_on_a_cpu(kind, "all", "bf16", "O1")


@pytest.mark.parametrize("kind", ["classify", "streaming", "synthesize", "translate"])
def test_every_model_trains_at_level_o2_as_on_a_cpu(kind: str) -> None:
    assert_trains_as_on_a_cpu(kind, "all", "bf16", "O2")


@pytest.mark.parametrize("name", TRAIN)
def test_whatever_is_trained_trains_on_a_gpu_as_on_a_cpu(name: str) -> None:
    assert_trains_as_on_a_cpu("classify", name, "bf16", "O1")

"""Gradient caching: the loss of all rows of a step, of which only some fit into memory at once."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.toys import TOKENIZER, TOYS, tiny_encoder

from ernie.data.batch import pack
from ernie.data.labeled.read import Split
from ernie.data.labeled.row import Row
from ernie.errors import Remark, UserError
from ernie.model.weights import arrays
from ernie.parallel.layout import ParallelConfig
from ernie.parallel.micro_batch import MicroBatch, backward
from ernie.train.adapter_config import AdapterConfig
from ernie.train.adversarial_config import AdversarialConfig
from ernie.train.lr_schedule import LRScheduleConfig
from finetune.config import FinetuneConfig, TrainConfig
from finetune.prepare import prepare
from finetune.train.grad_cache import GradCache
from finetune.train.loop import finetune
from finetune.train.model import TrainingModel
from finetune.train.training import set_dropout
from tasks.downstream.embed import Embed

TASK = Embed(max_len=16, temperature=0.1, negatives="wrong", dimensions=(32, 8))
WORDS = ["red film", "a blue one", "it was very green", "anna", "paul was in london ?", "great"]
ROWS = [Row({"text": f"q{n % 3} {word}", "text_pair": word, "wrong": WORDS[n - 2]}) for n, word in enumerate(WORDS)]
PLAIN = TrainConfig(epochs=3, batch=6, lr=LRScheduleConfig(peak=1e-3), micro_batch_tokens=8192)


def trained(task: Embed, config: TrainConfig) -> tuple[dict[str, np.ndarray], list[float]]:
    """The weights after training, and the loss of each epoch."""
    train, dev = (prepare(task, Split(name, ROWS), TOKENIZER) for name in ("train", "dev"))
    model, evaluations = finetune(tiny_encoder(), task, train, dev, config)
    return arrays(model), [each.loss for each in evaluations]


def close(one: dict[str, np.ndarray], other: dict[str, np.ndarray], tolerance: float) -> bool:
    return all(np.allclose(one[name], other[name], rtol=0, atol=tolerance) for name in one)


@pytest.mark.parametrize("settings", [{}, {"symmetric": True}])
def test_a_step_in_parts_has_the_loss_and_the_gradient_of_the_whole_step(settings: dict[str, Any]) -> None:
    task = replace(TASK, **settings)
    weights, losses = trained(task, PLAIN)
    small = replace(PLAIN, micro_batch_tokens=24)
    with warnings.catch_warnings():
        warnings.simplefilter("error", Remark)
        cached, cached_losses = trained(task, replace(small, grad_cache=True))
    assert cached_losses == pytest.approx(losses, 1e-5)
    assert close(weights, cached, 2e-5)
    with pytest.warns(
        Remark, match=r"the negatives of a row are the texts of its micro-batch.*train\.grad_cache: true"
    ):
        apart, _ = trained(task, small)
    assert not close(weights, apart, 2e-4)


def test_the_second_pass_has_the_dropout_of_the_first() -> None:
    examples = prepare(TASK, Split("train", ROWS), TOKENIZER).examples
    batch = pack([sample for example in examples for sample in example.samples])
    gradients = []
    for cached in (False, True):
        model = TrainingModel(tiny_encoder(), TASK)
        set_dropout(model, 0.3)
        model.train()
        micro = MicroBatch("task", batch, 1.0, 7)
        cache = GradCache(model)
        if cached:
            cache.fill([micro], batch)
        total = backward(
            micro, lambda _, packed, cache=cache, on=cached, model=model: (cache if on else model).loss(packed)
        )
        gradients.append((float(total), model.ernie.embedding.token.weight.grad.numpy()))
    assert gradients[0][0] == pytest.approx(gradients[1][0], 1e-6)
    np.testing.assert_allclose(gradients[0][1], gradients[1][1], rtol=0, atol=1e-6)
    assert np.abs(gradients[0][1]).max() > 1e-3


def test_adversarial_passes_are_cached_anew() -> None:
    config = replace(PLAIN, adversarial=AdversarialConfig(epsilon=0.5))
    weights, _ = trained(TASK, config)
    cached, _ = trained(TASK, replace(config, micro_batch_tokens=24, grad_cache=True))
    assert close(weights, cached, 5e-5)


def test_where_it_has_no_effect_it_is_refused() -> None:
    for task in (Embed(score="score"), TOYS["classify"].task):
        with pytest.raises(UserError, match=r"train\.grad_cache: has no effect on a loss that compares no vectors"):
            FinetuneConfig(task, train=TrainConfig(grad_cache=True))
    with pytest.raises(UserError, match=r"train\.grad_cache: .* parallel\.tensor spreads it over several"):
        FinetuneConfig(TASK, train=TrainConfig(grad_cache=True), parallel=ParallelConfig(tensor=2))


def test_low_rank_updates_learn_the_same_in_parts() -> None:
    config = replace(PLAIN, adapt=AdapterConfig(rank=2))
    weights, losses = trained(TASK, config)
    cached, _ = trained(TASK, replace(config, micro_batch_tokens=24, grad_cache=True))
    assert close(weights, cached, 2e-5)
    assert losses[-1] < losses[0]
    start = arrays(tiny_encoder())
    changed = {name for name, values in start.items() if not np.array_equal(values, weights[f"ernie.{name}"])}
    assert {name.rpartition(".")[0] for name in changed} == {"encoder.layers.0.q", "encoder.layers.0.v"}

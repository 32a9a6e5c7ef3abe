"""R-Drop: every sample passes twice, and the predictions of both passes are compared."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from support.toys import TOKENIZER, TOYS, tiny_encoder

from ernie.data.batch import Packed
from ernie.errors import UserError
from finetune.config import FinetuneConfig, TrainConfig
from finetune.train.model import TrainingModel
from finetune.train.steps import micro_batches, planned_steps
from finetune.train.training import set_dropout
from tasks.downstream.base import LogitsTask

KINDS = sorted(kind for kind, toy in TOYS.items() if isinstance(toy.task, LogitsTask))


def twice(kind: str, rows: int = 6) -> Packed:
    """A batch of a kind's rows with every sample twice."""
    toy = TOYS[kind]
    examples = [toy.task.training_example(row, TOKENIZER) for row in toy.rows(rows, seed=1)]
    (step,) = planned_steps(examples, TrainConfig(epochs=1, batch=rows), 0)
    (samples,) = micro_batches(examples, [example.tokens for example in examples], step, 10**6, passes=2)
    return samples.packed()


def model(kind: str, r_drop: float) -> TrainingModel:
    paddle.seed(3)
    made = TrainingModel(tiny_encoder(), TOYS[kind].task)
    set_dropout(made, 0.3)
    made.r_drop = r_drop
    return made


def loss(kind: str, r_drop: float, training: bool) -> float:
    own, packed = model(kind, r_drop), twice(kind)
    own.train() if training else own.eval()
    paddle.seed(7)
    found = own.loss(packed)
    return float(found.total) / found.count


@pytest.mark.parametrize("kind", KINDS)
def test_passes_differ_under_dropout_only(kind: str) -> None:
    assert loss(kind, 1.0, training=False) == pytest.approx(loss(kind, 0.0, training=False), rel=1e-5)
    assert loss(kind, 1.0, training=True) > loss(kind, 0.0, training=True) + 1e-5


@pytest.mark.parametrize("kind", KINDS)
def test_the_divergence_is_zero_for_equal_passes_and_grows_with_their_difference(kind: str) -> None:
    task = TOYS[kind].task
    assert isinstance(task, LogitsTask)
    rng = np.random.default_rng(0)
    one, far = rng.normal(size=(4, 3)), rng.normal(size=(4, 3))
    if kind == "extract":  # the starts of both passes, then the ends of both
        stacked = [np.concatenate([one[:2], other[:2], one[2:], other[2:]]) for other in (one, one + 0.1 * far, far)]
    else:
        stacked = [np.concatenate([one, other]) for other in (one, one + 0.1 * far, far)]
    same, near, apart = (float(task.divergence(paddle.to_tensor(each.astype(np.float32)))) for each in stacked)
    assert same == pytest.approx(0, abs=1e-6)
    assert 1e-4 < near < apart


def test_the_divergence_of_classes_is_half_the_sum_of_both_kullback_leibler_divergences() -> None:
    task = TOYS["classify"].task
    assert isinstance(task, LogitsTask)
    logits = np.random.default_rng(0).normal(size=(6, 4))
    p, q = np.split(np.exp(logits) / np.exp(logits).sum(-1, keepdims=True), 2)
    expected = 0.5 * ((p * np.log(p / q)).sum() + (q * np.log(q / p)).sum())
    assert float(task.divergence(paddle.to_tensor(logits.astype(np.float32)))) == pytest.approx(expected, rel=1e-5)


def test_the_divergence_of_several_labels_is_the_mean_over_them() -> None:
    task = TOYS["multilabel"].task
    assert isinstance(task, LogitsTask)
    logits = np.random.default_rng(0).normal(size=(6, 4))
    p, q = np.split(1 / (1 + np.exp(-logits)), 2)
    terms = sum(0.5 * (a * np.log(a / b) + b * np.log(b / a)) for a, b in ((p, q), (1 - p, 1 - q)))
    found = float(task.divergence(paddle.to_tensor(logits.astype(np.float32))))
    assert found == pytest.approx(terms.sum() / 4, rel=1e-4)


def test_both_passes_of_a_row_are_in_one_micro_batch_of_the_budget() -> None:
    toy = TOYS["classify"]
    examples = [toy.task.training_example(row, TOKENIZER) for row in toy.rows(20, seed=1)]
    (step,) = planned_steps(examples, TrainConfig(epochs=1, batch=20), 0)
    planned = micro_batches(examples, [example.tokens for example in examples], step, 60, passes=2)
    batches = [samples.packed() for samples in planned]
    assert len(batches) > 1
    for packed in batches:
        half = len(packed.samples) // 2
        np.testing.assert_array_equal(packed.samples[:half], packed.samples[half:])
        assert packed.layout.tokens <= 60
    assert sorted(row for packed in batches for row in packed.samples[:, 1].tolist()) == sorted([*range(20)] * 2)


def test_settings_without_effect_are_refused_or_remarked_on() -> None:
    with pytest.raises(UserError, match="r_drop: compares passes that differ by dropout, and dropout is 0"):
        TrainConfig(r_drop=1.0, dropout=0.0)
    with pytest.raises(UserError, match=r"train\.r_drop: a model of the kind translate has no logits to compare"):
        FinetuneConfig(TOYS["translate"].task, train=TrainConfig(r_drop=1.0))

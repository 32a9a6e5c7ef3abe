"""Loss scaling for fp16 training: how the scale changes, and that it does not change what is learned."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import paddle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paddle import Tensor, nn

from ernie.data.batch import Packed, pack
from ernie.data.document import Sample
from ernie.model.losses import Loss, cross_entropy
from ernie.train.adam_config import AdamConfig
from ernie.train.loss_scale import LossScale
from ernie.train.trainer import Trainer, TrainingStopped


def test_a_non_finite_step_halves_the_scale() -> None:
    scale = LossScale(64.0)
    assert scale.fall()
    assert scale.value == 32.0


def test_the_scale_doubles_after_enough_good_steps_in_a_row() -> None:
    scale = LossScale(64.0, growth_interval=3)
    for _ in range(2):
        scale.rise()
    scale.fall()  # restarts the count
    values = []
    for _ in range(6):
        scale.rise()
        values.append(scale.value)
    assert values == [32.0, 32.0, 64.0, 64.0, 64.0, 128.0]


def test_the_scale_does_not_fall_below_one_and_reports_it() -> None:
    scale = LossScale(2.0)
    assert scale.fall()
    assert not scale.fall()
    assert scale.value == 1.0


@given(st.lists(st.booleans(), max_size=300))
def test_the_scale_stays_a_power_of_two_within_its_bounds(good: list[bool]) -> None:
    scale = LossScale(growth_interval=2)
    for finite in good:
        scale.rise() if finite else scale.fall()
        assert 1 <= scale.value <= 2.0**24
        assert np.log2(scale.value).is_integer()


class Classifier(nn.Layer):
    def __init__(self, spoil: Callable[[Tensor], Tensor] = lambda total: total) -> None:
        super().__init__()
        paddle.seed(1)
        self.table, self.out = nn.Embedding(30, 6), nn.Linear(6, 3)
        self.spoil = spoil

    def loss(self, name: str, batch: Packed) -> Loss:
        logits = self.out(self.table(paddle.to_tensor(batch.ids[batch.layout.starts])))
        found = cross_entropy(logits, batch.labels["label"].values)
        return Loss(self.spoil(found.total), found.count, found.logits, found.labels)


def through_fp16(total: Tensor) -> Tensor:
    """Pass the loss, and so its gradient, through fp16, whose largest value is 65504."""
    return total.astype("float16").astype("float32")


def batch(step: int) -> Packed:
    rng = np.random.default_rng(step)
    return pack(
        [Sample(rng.integers(30, size=4), np.zeros(4, np.int64), {"label": int(rng.integers(3))}) for _ in range(8)]
    )


def train(model: Classifier, scale: LossScale | None, steps: int = 4) -> tuple[Trainer, list[bool]]:
    """Return the trainer, and which steps were skipped."""
    trainer = Trainer(model, AdamConfig(), clip=0.1, max_bad_steps=2, seed=0, loss_scale=scale)
    skipped = [trainer.step(step, [("task", batch(step))], model.loss, 0.1).skipped for step in range(steps)]
    return trainer, skipped


def test_scaling_changes_no_bit_of_the_trained_weights() -> None:
    plain, scaled = Classifier(), Classifier()
    train(plain, None)
    train(scaled, LossScale())
    for expected, actual in zip(plain.parameters(), scaled.parameters(), strict=True):
        assert np.array_equal(expected.numpy(), actual.numpy())


def test_steps_that_only_lower_the_scale_do_not_count_as_bad() -> None:
    scale = LossScale(2.0**23)  # divided by the eight rows, sixteen times too large for fp16
    trainer, skipped = train(Classifier(through_fp16), scale, steps=8)
    assert skipped == [True] * 5 + [False] * 3
    assert (scale.value, trainer.bad_steps) == (2.0**18, 0)


@pytest.mark.parametrize(
    "spoil",
    [lambda total: total * float("nan"), lambda total: total + paddle.sqrt(total * 0.0)],
    ids=["a loss", "a gradient at any scale"],
)
def test_training_stops_when_no_scale_gives_finite_values(spoil: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(TrainingStopped):
        train(Classifier(spoil), LossScale(4.0), steps=8)


def test_a_non_finite_loss_does_not_lower_the_scale() -> None:
    scale = LossScale()
    with pytest.raises(TrainingStopped):
        train(Classifier(lambda total: total * float("nan")), scale, steps=2)
    assert scale.value == LossScale().value

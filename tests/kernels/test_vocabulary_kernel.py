"""Logits of a vocabulary and their cross entropy, against their definitions in float64."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paddle import Tensor
from support.kernels.judging import (
    Results,
    assert_close,
    assert_near,
    assert_only_frozen_lack_gradients,
    needs_bf16,
    needs_kernels,
    normal,
    quick,
    run,
)

from ernie.errors import UserError
from ernie.kernels.precision import precision
from ernie.kernels.vocabulary import (
    sampled_classes,
    vocabulary_cross_entropy,
    vocabulary_cross_entropy_and_samples,
    vocabulary_logits,
)

positions = st.integers(1, 80)
vocabularies = st.one_of(st.integers(1, 40), st.integers(1, 400).map(lambda half: 2 * half + 1))

Inputs = tuple["list[np.ndarray]", np.ndarray]


def random_inputs(P: int, D: int, V: int, scale: float = 1.0) -> Inputs:
    """x, table and bias, and labels."""
    values = normal((P, D), (V, D), (V,), seed=(P, D, V), scale=scale)
    return values, np.random.default_rng(P).integers(0, V, P)


def loss(values: list[np.ndarray], labels: np.ndarray, frozen: tuple[int, ...] = ()) -> Results:
    return run(lambda *given: vocabulary_cross_entropy(*given, labels), values, 1 / len(labels), "float32", frozen)


def defined(values: list[np.ndarray], labels: np.ndarray) -> Results:
    """The definition, without Paddle's cross entropy: see below."""
    one_hot_PV = np.eye(len(values[1]))[labels]

    def definition(x_PD: Tensor, table_VD: Tensor, bias_V: Tensor) -> Tensor:
        logits_PV = x_PD @ table_VD.T + bias_V
        return (paddle.logsumexp(logits_PV, 1) - (logits_PV * paddle.to_tensor(one_hot_PV)).sum(1)).sum()

    return run(definition, values, 1 / len(labels), "float64")


@quick
@given(positions, st.integers(1, 70), vocabularies, st.sampled_from([0.3, 1.0]))
def test_the_loss_equals_its_definition_forward_and_backward(P: int, D: int, V: int, scale: float) -> None:
    inputs = random_inputs(P, D, V, scale)
    assert_close(loss(*inputs), defined(*inputs), 5e-5)


@quick
@given(positions, st.integers(1, 70), vocabularies)
def test_the_logits_equal_their_definition_forward_and_backward(P: int, D: int, V: int) -> None:
    *values, upstream = normal((P, D), (V, D), (V,), (P, V), seed=(P, D, V))
    found = run(vocabulary_logits, values, upstream)
    assert_close(found, run(lambda x, table, bias: x @ table.T + bias, values, upstream, "float64"))


@pytest.mark.parametrize("P", [1023, 1024, 1025, 2500])
def test_positions_beyond_a_thousand_are_computed_in_parts(P: int) -> None:
    inputs = random_inputs(P, 9, 33)
    assert_close(loss(*inputs), defined(*inputs))


@needs_bf16
@quick
@given(st.one_of(st.integers(8, 80), st.just(1100)), st.integers(8, 70), st.integers(8, 400))
def test_the_loss_in_bfloat16_is_near_its_definition(P: int, D: int, V: int) -> None:
    inputs = random_inputs(P, D, V)
    with precision("bf16"):
        found = loss(*inputs)
    assert_near(found, defined(*inputs))


def assert_drawn(found: np.ndarray, values: list[np.ndarray], draws: np.ndarray, tolerance: float = 1e-5) -> None:
    """Each number lies within the share of the class that it drew, as float64 computes the shares."""
    x, table, bias = (value.astype(np.float64) for value in values)
    logits_PV = x @ table.T + bias
    shares_PV = np.exp(logits_PV - logits_PV.max(1, keepdims=True))
    ends_PV = np.cumsum(shares_PV / shares_PV.sum(1, keepdims=True), 1)
    after = np.take_along_axis(ends_PV, found[:, None], 1)[:, 0]
    before = np.where(found > 0, np.take_along_axis(ends_PV, np.maximum(found - 1, 0)[:, None], 1)[:, 0], 0.0)
    assert (before - tolerance <= draws).all()
    assert (draws <= after + tolerance).all()


@quick
@given(st.one_of(positions, st.just(1100)), st.integers(1, 70), vocabularies, st.sampled_from([0.3, 1.0]))
def test_classes_are_drawn_from_the_softmax_and_the_loss_keeps_its_bits(P: int, D: int, V: int, scale: float) -> None:
    values, labels = random_inputs(P, D, V, scale)
    draws = np.random.default_rng(P + V).random(P)
    draws[:2] = [0.0, 1 - 2**-53][:P]  # the least and the largest
    drawn: list[np.ndarray] = []

    def sampled(*given: Tensor) -> Tensor:
        total, classes = vocabulary_cross_entropy_and_samples(*given, labels, draws)
        drawn.append(classes)
        return total

    found = run(sampled, values, 1 / P, "float32")
    assert all(np.array_equal(a, b) for a, b in zip(found, loss(values, labels), strict=True))  # type: ignore[arg-type]
    assert_drawn(drawn[0], values, draws)
    assert_drawn(sampled_classes(vocabulary_logits(*map(paddle.to_tensor, values)), draws), values, draws)


@needs_bf16
@quick
@given(st.one_of(st.integers(8, 80), st.just(1100)), st.integers(8, 70), st.integers(8, 400))
def test_in_bfloat16_classes_are_drawn_from_about_the_softmax(P: int, D: int, V: int) -> None:
    values, labels = random_inputs(P, D, V, 0.3)
    draws = np.random.default_rng(P + V).random(P)
    with precision("bf16"):
        _, found = vocabulary_cross_entropy_and_samples(*map(paddle.to_tensor, values), labels, draws)
    assert_drawn(found, values, draws, 0.02)


def test_a_class_without_a_share_is_never_drawn() -> None:
    values, labels = random_inputs(40, 5, 37)
    values[2][[0, *range(20, 37)]] = -1e4
    draws = np.tile([0.0, 1 - 2**-53], 20)
    _, found = vocabulary_cross_entropy_and_samples(*map(paddle.to_tensor, values), labels, draws)
    assert ((found >= 1) & (found < 20)).all()


@pytest.mark.parametrize("draw", [-0.1, 1.0, np.nan])
def test_draws_are_numbers_from_0_to_less_than_1(draw: float) -> None:
    values, labels = random_inputs(6, 5, 13)
    with pytest.raises(UserError, match="draws: expected numbers from 0 to less than 1"):
        vocabulary_cross_entropy_and_samples(*map(paddle.to_tensor, values), labels, np.array([0.5] * 5 + [draw]))


def test_draws_have_to_be_as_many_as_labels() -> None:
    values, labels = random_inputs(6, 5, 13)
    with pytest.raises(UserError, match=r"draws of the shape \(5,\): expected 6, one for each label"):
        vocabulary_cross_entropy_and_samples(*map(paddle.to_tensor, values), labels, np.zeros(5))


@needs_kernels  # Paddle's own limits the loss of a position to 64
def test_large_logits_do_not_overflow() -> None:
    values, labels = random_inputs(7, 4, 11, 100.0)
    found, wanted = loss(values, labels), defined(values, labels)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)  # type: ignore[arg-type]
    assert_close(found[1:], wanted[1:], 1e-3)


@pytest.mark.parametrize("frozen", [(0,), (1,), (2,), (0, 1), (1, 2)])
def test_frozen_inputs_get_no_gradient_and_others_are_unchanged(frozen: tuple[int, ...]) -> None:
    inputs = random_inputs(6, 5, 13)
    assert_only_frozen_lack_gradients(loss(*inputs, frozen=frozen), loss(*inputs), frozen)


def test_a_second_backward_pass_gives_the_same_gradients() -> None:
    values, labels = random_inputs(6, 5, 13)
    tensors = [paddle.to_tensor(value, stop_gradient=False) for value in values]
    total = vocabulary_cross_entropy(*tensors, labels) / 3
    first, second = (paddle.grad(total, tensors, retain_graph=True) for _ in range(2))
    assert all(np.array_equal(a.numpy(), b.numpy()) for a, b in zip(first, second, strict=True))


@needs_kernels  # Paddle's own ignores it
def test_a_nan_logit_makes_the_loss_nan() -> None:
    values, labels = random_inputs(6, 5, 40)
    values[1][(labels[0] + 1) % 40] = np.nan  # the embedding of a token that need not be a label
    assert np.isnan(loss(values, labels)[0]).all()  # type: ignore[arg-type]


def test_labels_can_be_int32() -> None:
    values, labels = random_inputs(6, 5, 13)
    assert np.array_equal(*(loss(values, labels.astype(kind))[0] for kind in ("int32", "int64")))  # type: ignore[arg-type]


@pytest.mark.parametrize("bad_label", [-100, 13])
def test_a_label_out_of_range_is_named(bad_label: int) -> None:
    values, labels = random_inputs(6, 5, 13)
    labels[2] = bad_label
    with pytest.raises(UserError, match=f"label {bad_label}: expected a number from 0 to 12"):
        loss(values, labels)

"""Cross entropy over the vocabulary, against its definition in 64 bits."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from judging import (
    Found,
    assert_close,
    assert_near,
    assert_only_the_frozen_are_left_out,
    needs_bf16,
    needs_kernels,
    normal,
    quick,
    run,
)
from paddle import Tensor

from ernie.errors import UserError
from ernie.kernels.precision import precision
from ernie.kernels.vocabulary import vocabulary_cross_entropy

positions = st.integers(1, 80)
vocabularies = st.one_of(st.integers(1, 40), st.integers(1, 400).map(lambda half: 2 * half + 1))

Drawn = tuple["list[np.ndarray]", np.ndarray]


def drawn(P: int, D: int, V: int, scale: float = 1.0) -> Drawn:
    """x, table and bias, and labels."""
    values = normal((P, D), (V, D), (V,), seed=(P, D, V), scale=scale)
    return values, np.random.default_rng(P).integers(0, V, P)


def loss(values: list[np.ndarray], labels: np.ndarray, frozen: tuple[int, ...] = ()) -> Found:
    return run(lambda *given: vocabulary_cross_entropy(*given, labels), values, 1 / len(labels), "float32", frozen)


def defined(values: list[np.ndarray], labels: np.ndarray) -> Found:
    """Not with Paddle's cross entropy: see below."""
    one_hot_PV = np.eye(len(values[1]))[labels]

    def definition(x_PD: Tensor, table_VD: Tensor, bias_V: Tensor) -> Tensor:
        logits_PV = x_PD @ table_VD.T + bias_V
        return (paddle.logsumexp(logits_PV, 1) - (logits_PV * paddle.to_tensor(one_hot_PV)).sum(1)).sum()

    return run(definition, values, 1 / len(labels), "float64")


@quick
@given(positions, st.integers(1, 70), vocabularies, st.sampled_from([0.3, 1.0]))
def test_the_loss_equals_its_definition_forward_and_backward(P: int, D: int, V: int, scale: float) -> None:
    of = drawn(P, D, V, scale)
    assert_close(loss(*of), defined(*of), 5e-5)


@pytest.mark.parametrize("P", [1023, 1024, 1025, 2500])
def test_positions_beyond_a_thousand_are_computed_in_parts(P: int) -> None:
    of = drawn(P, 9, 33)
    assert_close(loss(*of), defined(*of))


@needs_bf16
@quick
@given(st.one_of(st.integers(8, 80), st.just(1100)), st.integers(8, 70), st.integers(8, 400))
def test_the_loss_in_bfloat16_is_near_its_definition(P: int, D: int, V: int) -> None:
    of = drawn(P, D, V)
    with precision("bf16"):
        found = loss(*of)
    assert_near(found, defined(*of))


@needs_kernels  # Paddle's own takes no position's loss for more than 64
def test_large_logits_do_not_overflow() -> None:
    values, labels = drawn(7, 4, 11, 100.0)
    found, wanted = loss(values, labels), defined(values, labels)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)  # type: ignore[arg-type]
    assert_close(found[1:], wanted[1:], 1e-3)


@pytest.mark.parametrize("frozen", [(0,), (1,), (2,), (0, 1), (1, 2)])
def test_what_is_frozen_gets_no_gradient_and_the_rest_the_same(frozen: tuple[int, ...]) -> None:
    of = drawn(6, 5, 13)
    assert_only_the_frozen_are_left_out(loss(*of, frozen=frozen), loss(*of), frozen)


def test_a_second_backward_pass_gives_the_same_gradients() -> None:
    values, labels = drawn(6, 5, 13)
    tensors = [paddle.to_tensor(value, stop_gradient=False) for value in values]
    total = vocabulary_cross_entropy(*tensors, labels) / 3
    first, second = (paddle.grad(total, tensors, retain_graph=True) for _ in range(2))
    assert all(np.array_equal(one.numpy(), other.numpy()) for one, other in zip(first, second, strict=True))


@needs_kernels  # Paddle's own overlooks it
def test_a_logit_that_is_no_number_shows_in_the_loss() -> None:
    values, labels = drawn(6, 5, 40)
    values[1][(labels[0] + 1) % 40] = np.nan  # the table's row of a token that need not be any label
    assert np.isnan(loss(values, labels)[0]).all()  # type: ignore[arg-type]


def test_labels_may_be_of_32_bits() -> None:
    values, labels = drawn(6, 5, 13)
    assert np.array_equal(*(loss(values, labels.astype(kind))[0] for kind in ("int32", "int64")))  # type: ignore[arg-type]


@needs_kernels
@pytest.mark.parametrize("odd", [-100, 13])
def test_a_label_that_is_no_token_is_named(odd: int) -> None:
    values, labels = drawn(6, 5, 13)
    labels[2] = odd
    with pytest.raises(UserError, match=f"label {odd}: expected a number from 0 to 12"):
        loss(values, labels)


def test_labels_need_a_position_each() -> None:
    x, table = paddle.randn([3, 8]), paddle.randn([5, 8])
    with pytest.raises((UserError, ValueError)):
        vocabulary_cross_entropy(x, table, paddle.zeros([5]), np.array([1]))

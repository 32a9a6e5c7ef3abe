"""Attention against its definition in 64-bit NumPy, sequence by sequence: values and gradients."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.data.batch import Layout
from ernie.kernels.attention import attention
from ernie.kernels.linear import linear

layouts = st.lists(st.integers(min_value=1, max_value=24), min_size=1, max_size=7)
quick = settings(max_examples=30)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def reference(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, lengths: list[int], heads: int, upstream: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Attention and the gradients of sum(output * upstream) with respect to q, k, v: written out for each sequence
    and head."""
    out, dq, dk, dv = (np.zeros_like(q) for _ in range(4))
    size = q.shape[1] // heads
    scale = 1 / np.sqrt(size)
    start = 0
    for length in lengths:
        for head in range(heads):
            at = np.s_[start : start + length, head * size : (head + 1) * size]
            weights = softmax(q[at] @ k[at].T * scale)
            out[at] = weights @ v[at]
            d_weights = upstream[at] @ v[at].T
            d_scores = weights * (d_weights - (d_weights * weights).sum(-1, keepdims=True)) * scale
            dq[at], dk[at], dv[at] = d_scores @ k[at], d_scores.T @ q[at], weights.T @ upstream[at]
        start += length
    return out, dq, dk, dv


def draw(lengths: list[int], width: int, count: int = 4, scale: float = 1.0) -> list[np.ndarray]:
    rng = np.random.default_rng(lengths)
    return [(scale * rng.standard_normal((sum(lengths), width))).astype(np.float32) for _ in range(count)]


@quick
@given(layouts, st.sampled_from([1, 2, 4]), st.sampled_from([0.3, 1.0, 4.0]))
def test_attention_equals_its_definition_forward_and_backward(lengths: list[int], heads: int, scale: float) -> None:
    q, k, v, upstream = draw(lengths, 8 * heads, scale=scale)
    expected = reference(*(x.astype(np.float64) for x in (q, k, v)), lengths, heads, upstream.astype(np.float64))
    tensors = [paddle.to_tensor(x, stop_gradient=False) for x in (q, k, v)]
    out = attention(*tensors, Layout.of_lengths(lengths), heads)
    (out * paddle.to_tensor(upstream)).sum().backward()
    for found, wanted in zip([out, *(x.grad for x in tensors)], expected, strict=True):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=2e-5, atol=2e-5 * max(1.0, float(np.abs(wanted).max())))


@quick
@given(layouts.filter(lambda lengths: len(lengths) > 1), st.data())
def test_a_sequence_never_feels_another(lengths: list[int], data: st.DataObject) -> None:
    changed = data.draw(st.integers(min_value=0, max_value=len(lengths) - 1))
    layout = Layout.of_lengths(lengths)
    q, k, v, noise = draw(lengths, 16)
    theirs = np.repeat(np.arange(len(lengths)) == changed, lengths)[:, None]
    before = attention(*map(paddle.to_tensor, (q, k, v)), layout, 2).numpy()
    after = attention(*(paddle.to_tensor(np.where(theirs, x + 100 * noise, x)) for x in (q, k, v)), layout, 2).numpy()
    assert np.array_equal(before[~theirs[:, 0]], after[~theirs[:, 0]])


def test_one_token_attends_to_itself() -> None:
    q, k, v = draw([1, 1, 1], 8, 3)
    found = attention(*map(paddle.to_tensor, (q, k, v)), Layout.of_lengths([1, 1, 1]), 2)
    np.testing.assert_allclose(found.numpy(), v, rtol=1e-6)


def test_large_scores_neither_overflow_nor_reach_into_the_padding() -> None:
    lengths = [3, 7]
    q, k, v, upstream = draw(lengths, 8, scale=30.0)
    expected = reference(*(x.astype(np.float64) for x in (q, k, v)), lengths, 1, upstream)[0]
    found = attention(*map(paddle.to_tensor, (q, k, v)), Layout.of_lengths(lengths), 1).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-2)


def test_dropout_drops_weights_and_keeps_their_mean() -> None:
    paddle.seed(0)
    q, k = (paddle.zeros([4000, 4]) for _ in range(2))
    v = paddle.ones([4000, 4])
    found = attention(q, k, v, Layout.of_lengths([20] * 200), 1, dropout=0.3).numpy()[:, 0]
    assert found.mean() == pytest.approx(1.0, abs=0.01)  # 80,000 weights of deviation 0.65 / 20
    assert found.std() == pytest.approx(np.sqrt(0.3 / 0.7 / 20), rel=0.1)


@quick
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_the_linear_kernel_equals_its_definition_forward_and_backward(T: int, D: int, E: int) -> None:
    rng = np.random.default_rng((T, D, E))
    x, weight, bias, upstream = (rng.standard_normal(shape).astype(np.float32) for shape in ((T, D), (D, E), E, (T, E)))
    tensors = [paddle.to_tensor(value, stop_gradient=False) for value in (x, weight, bias)]
    out = linear(*tensors)
    (out * paddle.to_tensor(upstream)).sum().backward()
    expected = [x @ weight + bias, upstream @ weight.T, x.T @ upstream, upstream.sum(0)]
    for found, wanted in zip([out, *(value.grad for value in tensors)], expected, strict=True):
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("frozen", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
def test_the_linear_kernel_leaves_out_the_gradients_of_what_is_frozen(frozen: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(shape).astype(np.float32) for shape in ((5, 3), (3, 4), (4,))]
    all_free = [paddle.to_tensor(value, stop_gradient=False) for value in values]
    some_free = [paddle.to_tensor(value, stop_gradient=i in frozen) for i, value in enumerate(values)]
    for tensors in (all_free, some_free):
        (linear(*tensors) ** 2).sum().backward()
    for i, (one, other) in enumerate(zip(all_free, some_free, strict=True)):
        assert other.grad is None if i in frozen else np.array_equal(one.grad.numpy(), other.grad.numpy())

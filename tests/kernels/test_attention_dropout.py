"""Attention with dropout: the mask that the kernel applies, and the gradients for that mask."""

from __future__ import annotations

from functools import partial

import numpy as np
import paddle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kernels.definitions import attention_definition, visible, weight_masks
from support.kernels.judging import assert_close, needs_kernels, normal, quick, run
from support.kernels.philox import ATTENTION, seeded_mask

from ernie.data.batch import Layout
from ernie.kernels.attention import attention
from ernie.kernels.mask import Mask

pytestmark = needs_kernels


def applied_mask(length: int, heads: int, dropout: float, seed: int) -> np.ndarray:
    """The mask (H, T, T) of one sequence, read from the output for equal scores and unit vectors as values."""
    paddle.seed(seed)
    q, v = paddle.zeros([length, heads * length]), paddle.tile(paddle.eye(length), [1, heads])
    out = attention(q, q, v, Layout.of_lengths([length]), heads, dropout).numpy() * length
    return out.reshape(length, heads, length).transpose(1, 0, 2)


@quick
@given(st.integers(1, 150), st.integers(1, 3), st.sampled_from([0.1, 0.5, 0.9]), st.integers(0, 999))
def test_the_mask_of_the_kernel_is_that_of_the_generator(length: int, heads: int, dropout: float, seed: int) -> None:
    mask_of = partial(seeded_mask(seed), dropout, site=ATTENTION)
    expected = weight_masks(Layout.of_lengths([length]), heads, mask_of)
    np.testing.assert_allclose(applied_mask(length, heads, dropout, seed), expected, rtol=1e-5)


def test_sequences_of_a_batch_have_different_masks() -> None:
    paddle.seed(0)
    q, v = paddle.zeros([300, 100]), paddle.tile(paddle.eye(100), [3, 1])
    out = attention(q, q, v, Layout.of_lengths([100] * 3), 1, 0.5).numpy().reshape(3, 100, 100)
    masks = (out > 0) - 0.5
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert abs((masks[i] * masks[j]).mean()) < 4 * 0.25 / 100  # four standard deviations


@quick
@given(
    st.lists(st.integers(1, 90), min_size=1, max_size=4).map(Layout.of_lengths),
    st.tuples(st.integers(1, 4), st.integers(1, 40)),
    st.sampled_from([None, Mask.causal, partial(Mask.window, before=3, after=70)]),
    st.sampled_from([0.1, 0.5]),
)
def test_the_gradients_use_the_same_mask(layout: Layout, shape: tuple[int, int], kind, dropout: float) -> None:  # type: ignore[no-untyped-def]
    (heads, size), mask = shape, kind and kind(layout)
    *values, upstream = normal(*[(layout.tokens, heads * size)] * 4, seed=layout.tokens)
    mask_of = partial(seeded_mask(5), dropout, site=ATTENTION)
    dropout_HTT, visible_TT = weight_masks(layout, heads, mask_of), visible(layout, mask=mask)
    found = run(lambda q, k, v: attention(q, k, v, layout, heads, dropout, mask=mask), values, upstream)
    wanted = run(
        lambda q, k, v: attention_definition(q, k, v, visible_TT, heads, dropout_HTT), values, upstream, "float64"
    )
    assert_close(found, wanted, 2e-5 / (1 - dropout))


def test_the_gradient_equals_finite_differences() -> None:
    """With the same seed each time, and independent of any reference definition."""
    layout = Layout.of_lengths([30, 7])
    *values, direction = normal(*[(37, 12)] * 4, seed=2)

    def output(shift: float, which: int) -> float:
        paddle.seed(1)
        tensors = [paddle.to_tensor(x + shift * direction * (i == which)) for i, x in enumerate(values)]
        return float((attention(*tensors, layout, 3, 0.3) ** 2).sum().astype("float64"))

    tensors = [paddle.to_tensor(x, stop_gradient=False) for x in values]
    paddle.seed(1)
    (attention(*tensors, layout, 3, 0.3) ** 2).sum().backward()
    for which, tensor in enumerate(tensors):
        slope = (output(0.01, which) - output(-0.01, which)) / 0.02
        assert (tensor.grad.numpy() * direction).sum() == pytest.approx(slope, rel=2e-3, abs=2e-2)


def test_without_dropout_no_random_number_is_drawn() -> None:
    paddle.seed(7)
    q = paddle.to_tensor(normal((5, 8))[0])
    attention(q, q, q, Layout.of_lengths([5]), 2)
    assert seeded_mask(7).keywords["seed"] == int(paddle.framework.core.default_cpu_generator().random())

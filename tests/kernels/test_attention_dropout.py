"""Attention with dropout: its mask as the kernel shows it, and the gradients that belong to that very mask."""

from __future__ import annotations

from functools import partial

import numpy as np
import paddle
import pytest
from definitions import attended, kept_weights, sees
from hypothesis import given
from hypothesis import strategies as st
from judging import assert_close, needs_kernels, normal, quick, run
from philox import ATTENTION, seeded

from ernie.data.batch import Layout
from ernie.kernels.attention import attention
from ernie.kernels.mask import Mask

pytestmark = needs_kernels


def shown(length: int, heads: int, dropout: float, seed: int) -> np.ndarray:
    """The mask (H, T, T) of one sequence: all scores alike and values the unit vectors, the output is the weights."""
    paddle.seed(seed)
    q, v = paddle.zeros([length, heads * length]), paddle.tile(paddle.eye(length), [1, heads])
    out = attention(q, q, v, Layout.of_lengths([length]), heads, dropout).numpy() * length
    return out.reshape(length, heads, length).transpose(1, 0, 2)


@quick
@given(st.integers(1, 150), st.integers(1, 3), st.sampled_from([0.1, 0.5, 0.9]), st.integers(0, 999))
def test_the_mask_that_the_kernel_shows_is_the_generators(length: int, heads: int, dropout: float, seed: int) -> None:
    drawn = partial(seeded(seed), dropout, site=ATTENTION)
    expected = kept_weights(Layout.of_lengths([length]), heads, drawn)
    np.testing.assert_allclose(shown(length, heads, dropout, seed), expected, rtol=1e-5)


def test_sequences_of_a_batch_have_masks_of_their_own() -> None:
    paddle.seed(0)
    q, v = paddle.zeros([300, 100]), paddle.tile(paddle.eye(100), [3, 1])
    out = attention(q, q, v, Layout.of_lengths([100] * 3), 1, 0.5).numpy().reshape(3, 100, 100)
    masks = (out > 0) - 0.5
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert abs((masks[one] * masks[other]).mean()) < 4 * 0.25 / 100  # four standard deviations


@quick
@given(
    st.lists(st.integers(1, 90), min_size=1, max_size=4).map(Layout.of_lengths),
    st.tuples(st.integers(1, 4), st.integers(1, 40)),
    st.sampled_from([None, Mask.causal, partial(Mask.window, before=3, after=70)]),
    st.sampled_from([0.1, 0.5]),
)
def test_the_gradients_are_those_of_the_same_mask(layout: Layout, of: tuple[int, int], kind, dropout: float) -> None:  # type: ignore[no-untyped-def]
    (heads, size), mask = of, kind and kind(layout)
    *values, upstream = normal(*[(layout.tokens, heads * size)] * 4, seed=layout.tokens)
    drawn = partial(seeded(5), dropout, site=ATTENTION)
    kept, seen = kept_weights(layout, heads, drawn), sees(layout, mask=mask)
    found = run(lambda q, k, v: attention(q, k, v, layout, heads, dropout, mask=mask), values, upstream)
    wanted = run(lambda q, k, v: attended(q, k, v, seen, heads, kept), values, upstream, "float64")
    assert_close(found, wanted, 2e-5 / (1 - dropout))


def test_the_gradient_is_the_slope_of_the_output() -> None:
    """By finite differences, with the same seed each time: nothing is taken from a definition."""
    layout = Layout.of_lengths([30, 7])
    *values, direction = normal(*[(37, 12)] * 4, seed=2)

    def output(shift: float, of: int) -> float:
        paddle.seed(1)
        tensors = [paddle.to_tensor(x + shift * direction * (i == of)) for i, x in enumerate(values)]
        return float((attention(*tensors, layout, 3, 0.3) ** 2).sum().astype("float64"))

    tensors = [paddle.to_tensor(x, stop_gradient=False) for x in values]
    paddle.seed(1)
    (attention(*tensors, layout, 3, 0.3) ** 2).sum().backward()
    for of, tensor in enumerate(tensors):
        slope = (output(0.01, of) - output(-0.01, of)) / 0.02
        assert (tensor.grad.numpy() * direction).sum() == pytest.approx(slope, rel=2e-3, abs=2e-2)


def test_without_dropout_the_generator_is_not_asked() -> None:
    paddle.seed(7)
    q = paddle.to_tensor(normal((5, 8))[0])
    attention(q, q, q, Layout.of_lengths([5]), 2)
    assert seeded(7).keywords["seed"] == int(paddle.framework.core.default_cpu_generator().random())

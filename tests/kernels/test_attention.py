"""Attention against its definition in float64: values and gradients for any layout, heads and mask."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np
import paddle
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.kernels.definitions import attention_definition, visible
from support.kernels.judging import assert_close, normal, quick, run

from ernie.data.batch import Layout
from ernie.kernels.attention import attention, attention_over_runs
from ernie.kernels.choose import runs_in_cpp
from ernie.kernels.mask import Mask
from ernie.kernels.types import Runs

short = st.lists(st.integers(1, 40), min_size=1, max_size=7)
long = st.lists(st.integers(1, 200), min_size=1, max_size=2)
layouts = st.one_of(short, long).map(Layout.of_lengths)
heads_and_sizes = st.tuples(st.integers(1, 8), st.integers(1, 70)).filter(lambda pair: pair[0] * pair[1] <= 256)


@st.composite
def masks(draw: st.DrawFn, layout: Layout, keys: Layout | None = None) -> Mask | None:
    """Any kind of mask; with `keys`, any intervals, including empty ones and ones beyond the end."""
    reach = st.integers(0, layout.longest)
    if keys is not None:
        ends = st.lists(st.integers(0, keys.longest + 3), min_size=layout.tokens, max_size=layout.tokens)
        return Mask(*(np.array(draw(ends), np.int32) for _ in range(2)))
    return draw(
        st.one_of(
            st.none(),
            st.just(Mask.causal(layout)),
            st.builds(partial(Mask.window, layout), reach, reach),
            st.builds(partial(Mask.chunk, layout), reach.map(lambda n: n + 1), st.integers(0, 2)),
            st.lists(reach, min_size=layout.sequences, max_size=layout.sequences).map(
                lambda lengths: Mask.prefix(layout, np.array(lengths))
            ),
            st.integers(0, 3).map(lambda k: Mask.until(layout.positions + k)),
        )
    )


def check(layout: Layout, keys: Layout, heads: int, size: int, mask: Mask | None, scale: float = 1.0) -> None:
    shapes = [(layout.tokens, heads * size), *[(keys.tokens, heads * size)] * 2, (layout.tokens, heads * size)]
    *values, upstream = normal(*shapes, seed=(layout.tokens, heads, size), scale=scale)
    given_mask = mask if keys is layout else (mask or Mask.window(layout, keys.longest, keys.longest))
    found = run(lambda q, k, v: attention(q, k, v, layout, heads, keys=keys, mask=given_mask), values, upstream)
    visible_TS = visible(layout, keys, given_mask)
    wanted = run(lambda q, k, v: attention_definition(q, k, v, visible_TS, heads), values, upstream, "float64")
    assert_close(found, wanted, 2e-5 * max(1.0, scale))


@quick
@given(layouts, heads_and_sizes, st.data())
def test_attention_equals_its_definition_forward_and_backward(
    layout: Layout, shape: tuple[int, int], data: st.DataObject
) -> None:
    check(layout, layout, *shape, data.draw(masks(layout)))


@quick
@given(st.data(), heads_and_sizes)
def test_attention_to_other_sequences_equals_its_definition(data: st.DataObject, shape: tuple[int, int]) -> None:
    pairs = data.draw(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 90)), min_size=1, max_size=5))
    layout, keys = (Layout.of_lengths(lengths) for lengths in zip(*pairs, strict=True))
    check(layout, keys, *shape, data.draw(masks(layout, keys)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_fully_masked_query_has_zero_output_and_gradient(dtype: str) -> None:
    layout = Layout.of_lengths([3, 70, 1])
    empty = Mask(np.full(74, 5, np.int32), np.full(74, 5, np.int32))
    values = normal((74, 6), (74, 6), (74, 6))
    for result in run(lambda q, k, v: attention(q, k, v, layout, 2, mask=empty), values, 1.0, dtype):
        assert result is not None and not result.any()


@quick
@given(layouts.filter(lambda layout: layout.sequences > 1), heads_and_sizes, st.data())
def test_a_sequence_does_not_depend_on_others(layout: Layout, shape: tuple[int, int], data: st.DataObject) -> None:
    changed = data.draw(st.integers(0, layout.sequences - 1))
    is_changed = np.repeat(np.arange(layout.sequences) == changed, layout.lengths)[:, None]
    mask, D = data.draw(masks(layout)), shape[0] * shape[1]
    *values, upstream = normal(*[(layout.tokens, D)] * 4, seed=layout.tokens)

    def kernel(q: paddle.Tensor, k: paddle.Tensor, v: paddle.Tensor) -> paddle.Tensor:
        return attention(q, k, v, layout, shape[0], mask=mask)

    before = run(kernel, values, upstream)
    for factor in (100.0, np.nan):
        after = run(kernel, [np.where(is_changed, x * np.float32(factor), x) for x in values], upstream)
        for old, new in zip(before, after, strict=True):
            assert old is not None and new is not None
            assert np.array_equal(old[~is_changed[:, 0]], new[~is_changed[:, 0]])


@quick
@given(layouts, heads_and_sizes, st.data())
def test_masked_keys_do_not_affect_a_query(layout: Layout, shape: tuple[int, int], data: st.DataObject) -> None:
    mask, D = data.draw(masks(layout)), shape[0] * shape[1]
    query = data.draw(st.integers(0, layout.tokens - 1))
    masked = ~visible(layout, mask=mask)[query][:, None]
    q, k, v, noise = map(paddle.to_tensor, normal(*[(layout.tokens, D)] * 4, seed=layout.tokens))
    k2, v2 = (paddle.where(paddle.to_tensor(masked), x + 100 * noise, x) for x in (k, v))
    before, after = (attention(q, *kv, layout, shape[0], mask=mask)[query].numpy() for kv in ((k, v), (k2, v2)))
    assert np.array_equal(before, after)


in_cpp = pytest.mark.skipif(not runs_in_cpp(paddle.zeros([1])), reason="only the C++ kernels promise it")


@in_cpp
@quick
@given(st.data(), heads_and_sizes)
def test_attention_over_runs_equals_attention_to_the_last_bit(data: st.DataObject, shape: tuple[int, int]) -> None:
    lengths = st.tuples(st.one_of(st.integers(0, 1), st.integers(0, 60)), st.integers(0, 90))
    pairs = data.draw(st.lists(lengths, min_size=1, max_size=5))
    layout, keys = (Layout.of_lengths(lengths) for lengths in zip(*pairs, strict=True))
    assume(layout.tokens and keys.tokens)
    mask = data.draw(st.one_of(st.none(), masks(layout, keys)))
    D, dropout, heads = shape[0] * shape[1], data.draw(st.sampled_from([0.0, 0.4])), shape[0]
    q, k, v = map(paddle.to_tensor, normal((layout.tokens, D), (keys.tokens, D), (keys.tokens, D), seed=layout.tokens))
    cuts = sorted(data.draw(st.sets(st.integers(1, keys.tokens))) | {0, *keys.offsets.tolist()})
    # Each run lies in memory of its own, which ends with it.
    parts = [(k[a:b].clone(), v[a:b].clone()) for a, b in pairwise(cuts)]
    addresses = np.array([[x.data_ptr() for x in part] for part in parts], np.int64).T.copy()
    counts = np.diff(cuts).astype(np.int32)
    runs = Runs(np.searchsorted(cuts, keys.offsets).astype(np.int32), *addresses, counts)
    paddle.seed(1)
    wanted = attention(q, k, v, layout, heads, dropout, keys=keys, mask=mask)
    paddle.seed(1)
    assert np.array_equal(attention_over_runs(q, runs, layout, heads, dropout, keys=keys, mask=mask), wanted)


@in_cpp
@quick
@given(st.lists(st.integers(1, 200), min_size=1, max_size=4), heads_and_sizes, st.data())
def test_a_single_query_has_the_bits_of_one_among_others(
    lengths: list[int], shape: tuple[int, int], data: st.DataObject
) -> None:
    single, several, keys = (Layout.of_lengths(each) for each in ([1] * len(lengths), [3] * len(lengths), lengths))
    mask = data.draw(st.one_of(st.none(), masks(single, keys)))
    repeated = None if mask is None else Mask(np.repeat(mask.first, 3), np.repeat(mask.last, 3))
    D = shape[0] * shape[1]
    q, k, v = map(paddle.to_tensor, normal((single.tokens, D), (keys.tokens, D), (keys.tokens, D), seed=keys.tokens))
    found = attention(q, k, v, single, shape[0], keys=keys, mask=mask).numpy()
    q3 = paddle.repeat_interleave(q, 3, 0)
    among = attention(q3, k, v, several, shape[0], keys=keys, mask=repeated).numpy()
    assert np.array_equal(np.repeat(found, 3, 0), among)


def test_one_token_attends_to_itself() -> None:
    q, k, v = normal((3, 8), (3, 8), (3, 8))
    found = attention(*map(paddle.to_tensor, (q, k, v)), Layout.of_lengths([1, 1, 1]), 2)
    np.testing.assert_allclose(found.numpy(), v, rtol=1e-6)


@pytest.mark.parametrize("scale", [30.0, 1000.0])
def test_large_scores_neither_overflow_nor_leak_into_other_sequences(scale: float) -> None:
    layout = Layout.of_lengths([3, 70, 7])
    q, k, v, upstream = normal(*[(80, 16)] * 4)
    # Integers, so that float32 holds the scores exactly; for some queries the highest score occurs twice.
    values = [np.round(q), np.round(k) * np.float32(scale), v]
    found = run(lambda q, k, v: attention(q, k, v, layout, 1), values, upstream)
    visible_TS = visible(layout)
    wanted = run(lambda q, k, v: attention_definition(q, k, v, visible_TS, 1), values, upstream, "float64")
    assert_close(found, wanted, 1e-3)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_nan_is_propagated(which: int) -> None:
    values = normal((5, 8), (5, 8), (5, 8))
    values[which][3, 2] = np.nan
    found = attention(*map(paddle.to_tensor, values), Layout.of_lengths([1, 4]), 1).numpy()
    assert np.isnan(found[3]).all() if which < 2 else np.isnan(found[3, 2])
    assert not np.isnan(found[0]).any()


def test_column_slices_of_a_wider_tensor_are_read_correctly() -> None:
    layout, (wide,) = Layout.of_lengths([4, 3]), normal((7, 36))
    parts = paddle.split(paddle.to_tensor(wide), 3, axis=1)
    found = attention(*parts, layout, 2).numpy()
    whole = attention(*(paddle.to_tensor(part.numpy()) for part in parts), layout, 2).numpy()
    assert np.array_equal(found, whole)

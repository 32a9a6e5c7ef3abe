"""The causal encoder: on whole sequences, or incrementally as tokens arrive."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import paddle
from hypothesis import given, settings
from hypothesis import strategies as st
from paddle import Tensor

from ernie.data.batch import Layout
from ernie.kernels.mask import Mask
from ernie.kernels.precision import batch_invariant
from ernie.model.cache import KeyValueCache
from ernie.model.config import EncoderConfig
from ernie.model.encoder import Encoder

CONFIG = replace(EncoderConfig.preset("tiny"), hidden_size=32, heads=4, intermediate_size=48)


def encoder(seed: int) -> Encoder:
    paddle.seed(seed)
    found = Encoder(CONFIG)
    found.eval()
    return found


def vectors(rows: int, seed: int) -> Tensor:
    return paddle.to_tensor(np.random.default_rng(seed).normal(size=(rows, 32)).astype("float32"))


@settings(max_examples=20)
@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=3), st.integers(0, 99))
def test_incremental_encoding_equals_encoding_at_once(pieces: list[list[int]], seed: int) -> None:
    most = max(map(len, pieces))
    pieces = [[*sizes, *[0] * (most - len(sizes))] for sizes in pieces]
    for sizes in pieces:
        sizes[0] += 1  # every sequence has a token
    layout = Layout.of_lengths([sum(sizes) for sizes in pieces])
    x_TD, model = vectors(layout.tokens, seed), encoder(seed)
    with paddle.no_grad():
        whole = model(x_TD, layout, mask=Mask.causal(layout)).numpy()
        cache, done = KeyValueCache.empty(len(pieces)), np.zeros(len(pieces), np.int64)
        for piece in np.array(pieces).T:
            rows = np.concatenate([layout.starts[n] + done[n] + np.arange(piece[n]) for n in range(len(pieces))])
            done += piece
            if not len(rows):
                continue
            part = paddle.gather(x_TD, paddle.to_tensor(rows))
            found, cache = model.forward_cached(part, Layout.of_lengths(piece), cache)
            np.testing.assert_allclose(found.numpy(), whole[rows], atol=2e-5)
    assert cache.layout.lengths.tolist() == layout.lengths.tolist()


def test_a_later_token_changes_no_bit_of_an_earlier_one() -> None:
    layout, model = Layout.of_lengths([5, 3]), encoder(1)
    x_TD = vectors(8, 1)
    for gradients in (False, True):
        with paddle.set_grad_enabled(gradients):
            found = model(x_TD, layout, mask=Mask.causal(layout)).numpy()
            other = x_TD.numpy()
            other[[3, 4, 7]] = 5.0
            again = model(paddle.to_tensor(other), layout, mask=Mask.causal(layout)).numpy()
            kept = [0, 1, 2, 5, 6]
            assert (found[kept] == again[kept]).all()
            assert (found[[3, 4, 7]] != again[[3, 4, 7]]).any(axis=1).all()


@settings(max_examples=20)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=3), st.integers(1, 3), st.integers(0, 4), st.integers(0, 99))
def test_chunks_at_once_equal_one_chunk_after_the_other_to_the_last_bit(
    lengths: list[int], chunk: int, before: int, seed: int
) -> None:
    lengths[0] += 1  # some sequence has a token
    layout = Layout.of_lengths(lengths)
    x_TD, model, fresh = vectors(layout.tokens, seed), encoder(seed), KeyValueCache.empty(len(lengths))
    steps, cache = [], fresh
    with paddle.no_grad(), batch_invariant():
        at_once, last = model.forward_chunks(x_TD, layout, fresh, chunk, before)
        for first in range(0, layout.longest, chunk):
            rows = np.flatnonzero((layout.positions >= first) & (layout.positions < first + chunk))
            part = Layout.of_lengths(np.clip(layout.lengths - first, 0, chunk))
            found, cache = model.forward_chunks(paddle.gather(x_TD, paddle.to_tensor(rows)), part, cache, chunk, before)
            steps.append((rows, found.numpy()))
        first_T = layout.positions // chunk * chunk
        masked = model(x_TD, layout, mask=Mask(first_T - before, first_T + chunk))
    for rows, found in steps:
        assert (at_once.numpy()[rows] == found).all()
    np.testing.assert_allclose(at_once.numpy(), masked.numpy(), atol=2e-5)
    for name, array in last.arrays().items():
        assert (cache.arrays()[name] == array).all()

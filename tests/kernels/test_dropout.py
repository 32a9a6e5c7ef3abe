"""The generator of all dropout masks: its words, its keep rate, and that masks are uncorrelated."""

from __future__ import annotations

import numpy as np
import paddle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kernels.judging import needs_kernels, quick
from support.kernels.philox import AFTER_ATTENTION, AFTER_FEED_FORWARD, ATTENTION, STANDALONE, dropout_mask, philox

from ernie.kernels.cpu.call import loaded

ROWS, COLUMNS, SEED = 256, 1024, 0x0123_4567_89AB_CDEF

Words = tuple[int, ...]


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0,) * 4, (0,) * 2, (0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0x4DFCCABA, 0x190A87F0, 0xC47362BA, 0xB6B5242A),
        ),
    ],
)
def test_the_numpy_generator_matches_the_published_test_vectors(
    counter: Words, key: tuple[int, int], words: Words
) -> None:
    assert tuple(int(word) for word in philox(tuple(map(np.array, counter)), key)) == words


@needs_kernels
@quick
@given(st.integers(1, 9), st.integers(1, 300), st.floats(0.015625, 0.984375, width=32), st.integers(0, 2**64 - 1))
def test_the_kernel_matches_the_numpy_generator(rows: int, columns: int, probability: float, seed: int) -> None:
    ones, found = paddle.ones([rows, columns]), paddle.empty([rows, columns])
    loaded().call("drop", ones.data_ptr(), probability, seed, rows, columns, found.data_ptr())
    np.testing.assert_allclose(found.numpy(), dropout_mask(probability, seed, STANDALONE, rows, columns), rtol=1e-6)


@pytest.mark.parametrize("probability", [0.01, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("seed", [0, 1, SEED])
def test_the_share_of_kept_elements_is_right(probability: float, seed: int) -> None:
    mask = dropout_mask(probability, seed, STANDALONE, ROWS, COLUMNS) > 0
    for axis in (None, 0, 1):  # of all, of each column, of each row
        count = mask.size if axis is None else mask.shape[axis]
        deviation = np.abs(mask.mean(axis) - (1 - probability)) / np.sqrt(probability * (1 - probability) / count)
        assert np.max(deviation) < (4 if axis is None else 5.5)  # the worst of a thousand


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    """The correlation of two masks, in standard deviations of that of independent masks."""
    a, b = ((x > 0) - (x > 0).mean() for x in (first, second))
    return float(abs((a * b).mean()) / (a.std() * b.std()) * np.sqrt(a.size))


@pytest.mark.parametrize("rows", [1, 2, 16, 64])
def test_neighboring_rows_are_uncorrelated(rows: int) -> None:
    mask = dropout_mask(0.5, SEED, STANDALONE, ROWS, COLUMNS)
    assert _correlation(mask[rows:], mask[:-rows]) < 4


@pytest.mark.parametrize("columns", [1, 2, 8, 15, 16, 17, 32, 64, 128])
def test_neighboring_columns_are_uncorrelated(columns: int) -> None:
    mask = dropout_mask(0.5, SEED, STANDALONE, ROWS, COLUMNS)
    assert _correlation(mask[:, columns:], mask[:, :-columns]) < 4


@pytest.mark.parametrize("difference", [1, 2, 1 << 31, 1 << 32, 1 << 63])
def test_neighboring_seeds_are_uncorrelated(difference: int) -> None:
    masks = [dropout_mask(0.5, seed, STANDALONE, ROWS, COLUMNS) for seed in (SEED, (SEED + difference) % 2**64)]
    assert _correlation(*masks) < 4


def test_sites_of_a_layer_and_heads_are_uncorrelated() -> None:
    masks = [
        dropout_mask(0.5, SEED, site, ROWS, COLUMNS)
        for site in (STANDALONE, ATTENTION, AFTER_ATTENTION, AFTER_FEED_FORWARD)
    ]
    masks += [dropout_mask(0.5, SEED, ATTENTION, ROWS, COLUMNS, head) for head in (1, 2, 7)]
    for number, mask in enumerate(masks):
        assert all(_correlation(mask, other) < 4 for other in masks[:number])


def test_no_row_is_repeated() -> None:
    packed = np.packbits(dropout_mask(0.5, SEED, STANDALONE, 4096, 64) > 0, axis=1)
    assert len(np.unique(packed, axis=0)) == len(packed)

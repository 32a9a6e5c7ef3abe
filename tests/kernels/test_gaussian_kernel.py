"""Attention by a Gaussian over the letters of texts against its definition in float64."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.kernels.judging import needs_kernels, normal, quick

from ernie.errors import UserError
from ernie.kernels import cpu
from ernie.kernels.gaussian import gaussian_attention, reference


@needs_kernels
@quick
@given(st.lists(st.integers(1, 30), min_size=1, max_size=9), st.sampled_from([1, 5, 16, 40]))
def test_attention_equals_its_definition_and_depends_on_no_other_text(lengths: list[int], D: int) -> None:
    N, offsets = len(lengths), np.cumsum([0, *lengths])
    position, precision, middles, values = normal((N,), (N,), (offsets[-1],), (offsets[-1], D), seed=(N, D))
    position, precision, middles = 5 * position, np.abs(precision), np.sort(9 * middles)
    attended, most = cpu.gaussian.gaussian_attention(position, precision, middles, values, offsets)
    given64 = (array.astype(np.float64) for array in (position, precision, middles, values))
    expected, nearest = reference(*given64, offsets)
    np.testing.assert_allclose(attended, expected, atol=1e-4)  # scores of a thousand are as far off in float32
    np.testing.assert_array_equal(most, nearest)
    for n, (first, stop) in enumerate(pairwise(offsets)):
        own = slice(n, n + 1), slice(n, n + 1), slice(first, stop), slice(first, stop)
        arrays = (array[part] for array, part in zip((position, precision, middles, values), own, strict=True))
        (alone,), _ = gaussian_attention(*arrays, np.array([0, stop - first]))
        np.testing.assert_array_equal(alone, attended[n])


def test_shapes_that_do_not_fit_and_texts_without_a_token_are_errors() -> None:
    position, middles, values = np.zeros(2, np.float32), np.zeros(5, np.float32), np.zeros((5, 3), np.float32)
    with pytest.raises(UserError, match="expected one for each of 2 texts, for each of 5 tokens, and 3"):
        gaussian_attention(position, position, middles[1:], values, np.array([0, 2, 5]))
    with pytest.raises(UserError, match="offsets: expected those of 2 texts of at least one token, from 0 to 5"):
        gaussian_attention(position, position, middles, values, np.array([0, 0, 5]))

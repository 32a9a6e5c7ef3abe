"""Attention by a Gaussian over the letters of a text, without gradients.

Battenberg et al., 2020, "Location-relative attention mechanisms" (arXiv 1910.10288).

Legend: N texts with one query each, T tokens of all texts, D width.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ernie.errors import UserError
from ernie.kernels import cpu
from ernie.kernels.choose import choose_for_arrays


def gaussian_attention(
    position_N: np.ndarray, precision_N: np.ndarray, middles_T: np.ndarray, values_TD: np.ndarray, offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return what each query attends to, (N, D), and the token with the largest weight, counted within its text, (N,).

    The weight of a token is proportional to exp(-precision (middle - position)^2 / 2).  The tokens of text n are those
    from `offsets[n]` to `offsets[n + 1]`, at least one.  The result of a text depends on no other.  Raises UserError if
    the shapes do not fit.
    """
    (N,), (T, _) = position_N.shape, values_TD.shape
    if (precision_N.shape, middles_T.shape, offsets.shape) != ((N,), (T,), (N + 1,)):
        raise UserError(
            f"precision {precision_N.shape}, middles {middles_T.shape}, offsets {offsets.shape}: expected one for each "
            f"of {N} texts, for each of {T} tokens, and {N + 1}"
        )
    if offsets[0] != 0 or offsets[-1] != T or (np.diff(offsets) < 1).any():
        raise UserError(f"offsets: expected those of {N} texts of at least one token, from 0 to {T}")
    impl = choose_for_arrays(reference, cpu.gaussian.gaussian_attention)
    return impl(position_N, precision_N, middles_T, values_TD, offsets)


def reference(
    position_N: np.ndarray, precision_N: np.ndarray, middles_T: np.ndarray, values_TD: np.ndarray, offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Reference implementation in NumPy."""
    attended, most = [], []
    for n, (first, stop) in enumerate(pairwise(offsets)):
        scores = -0.5 * precision_N[n] * (middles_T[first:stop] - position_N[n]) ** 2
        weights = np.exp(scores - scores.max())
        attended.append(weights / weights.sum() @ values_TD[first:stop])
        most.append(int(scores.argmax()))
    return np.array(attended, values_TD.dtype).reshape(len(position_N), -1), np.array(most, np.int64)

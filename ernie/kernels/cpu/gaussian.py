"""CPU implementation of ernie.kernels.gaussian."""

from __future__ import annotations

import numpy as np

from ernie.kernels.cpu.call import loaded


def gaussian_attention(
    position_N: np.ndarray, precision_N: np.ndarray, middles_T: np.ndarray, values_TD: np.ndarray, offsets: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """As ernie.kernels.gaussian.reference."""
    N, D = len(position_N), values_TD.shape[1]
    attended, most = np.empty((N, D), np.float32), np.empty(N, np.int64)
    bounds = np.ascontiguousarray(offsets, np.int64)
    given = [np.ascontiguousarray(array, np.float32) for array in (position_N, precision_N, middles_T, values_TD)]
    loaded().call(
        *("gaussian_attention", N, bounds.ctypes.data, D, *(array.ctypes.data for array in given)),
        *(attended.ctypes.data, most.ctypes.data),
    )
    return attended, most

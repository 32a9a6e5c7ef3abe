"""CPU implementation of ernie.kernels.sampling: one loop in C++, with the weights in a core's cache."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from ernie.kernels.cpu.call import byref, loaded
from ernie.kernels.cpu.library import SampleNetwork
from ernie.kernels.types import SamplingWeights


def draw(
    network: SamplingWeights,
    rows: Sequence[Sequence[np.ndarray]],
    conditioning_NSLC: np.ndarray,
    last_N: np.ndarray,
    noise_NS: np.ndarray | None,
    samples_NS: np.ndarray,
) -> None:
    """As ernie.kernels.sampling.reference."""
    _, loudness, *weights = network
    dilations = np.array(network.dilations, np.int64)
    weights = [_contiguous(weight) for weight in weights]
    L, C = network.residual_bias.shape
    shape = SampleNetwork(L, C, network.taps, loudness, dilations.ctypes.data, *(w.ctypes.data for w in weights))
    (N, S), layers = samples_NS.shape, [layer_rows.ctypes.data for own in rows for layer_rows in own]
    addresses = (ctypes.c_void_p * (N * L))(*layers)  # written in place
    last, conditioning = _contiguous(last_N), _contiguous(conditioning_NSLC)
    noise = None if noise_NS is None else _contiguous(noise_NS)
    loaded().call(
        "draw",
        byref(shape),
        *(N, S, last.ctypes.data, conditioning.ctypes.data, None if noise is None else noise.ctypes.data),
        *(addresses, samples_NS.ctypes.data),
    )


def _contiguous(array: np.ndarray) -> np.ndarray:
    """Return the array as contiguous float32: itself if it is that already."""
    return np.ascontiguousarray(array, np.float32)

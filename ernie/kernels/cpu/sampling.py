"""CPU body of ernie.kernels.sampling: one loop in C++, the weights in a core's cache."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ernie.kernels.cpu.call import byref, loaded
from ernie.kernels.cpu.library import SampleNetwork

if TYPE_CHECKING:
    from ernie.kernels.sampling import Network


def draw(
    network: Network,
    rows: Sequence[np.ndarray],
    told_SLC: np.ndarray,
    last: float,
    noise_S: np.ndarray | None,
    samples_S: np.ndarray,
) -> None:
    """As ernie.kernels.sampling.reference."""
    _, loudness, *weights = network
    dilations = np.array(network.dilations, np.int64)
    weights = [_read(weight) for weight in weights]
    L, C = network.on_bias.shape
    shape = SampleNetwork(L, C, network.taps, loudness, dilations.ctypes.data, *(one.ctypes.data for one in weights))
    addresses = (ctypes.c_void_p * L)(*(own.ctypes.data for own in rows))  # which it fills where they lie
    told, noise = _read(told_SLC), None if noise_S is None else _read(noise_S)
    loaded().call(
        "draw",
        byref(shape),
        *(len(samples_S), last, told.ctypes.data, None if noise is None else noise.ctypes.data),
        *(addresses, samples_S.ctypes.data),
    )


def _read(array: np.ndarray) -> np.ndarray:
    """The array as C reads it: itself where it lies so already."""
    return np.ascontiguousarray(array, np.float32)

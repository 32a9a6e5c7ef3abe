"""Keys and values that lie in memory in runs of rows: attention to them, and copies of them."""

from __future__ import annotations

import numpy as np
from paddle import Tensor

from ernie.data.batch import Layout
from ernie.kernels.cpu.call import Shape, byref, loaded, seed_of
from ernie.kernels.cpu.pool import empty_like
from ernie.kernels.mask import Mask
from ernie.kernels.types import Runs


def attention_over_runs(
    q_TD: Tensor, runs: Runs, layout: Layout, heads: int, dropout: float, keys: Layout, mask: Mask | None
) -> Tensor:
    """As ernie.kernels.cpu.attention.attention, to the last bit, without gradients."""
    shape, mixed_TD = Shape(layout, keys, heads, q_TD.shape[-1], mask), empty_like(q_TD)
    addresses = [array.ctypes.data for array in runs]
    seed = seed_of(dropout)
    loaded().call(
        "attention_over_runs",
        *(byref(shape.structure), dropout, seed, q_TD.data_ptr(), *addresses, mixed_TD.data_ptr()),
    )
    return mixed_TD


def copy_runs(to: np.ndarray, of: np.ndarray, sizes: np.ndarray) -> None:
    """Copy `sizes` bytes from each of the addresses `of` to each of the addresses `to`; all are int64, (R,)."""
    loaded().call("copy_runs", len(sizes), to.ctypes.data, of.ctypes.data, sizes.ctypes.data)

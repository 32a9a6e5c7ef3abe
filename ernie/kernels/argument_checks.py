"""Checks of the arguments of kernels: shapes, row numbers and settings.

The C++ takes the sizes of some tensors from the shapes of others, so a mismatch would make it read out of bounds.
Paddle's own operators report mismatches less clearly.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from paddle import Tensor

from ernie.data.batch import Layout
from ernie.errors import UserError
from ernie.kernels.mask import Mask
from ernie.kernels.types import Factors, LayerWeights

ACTIVATIONS = {"none": 0, "gelu": 1, "relu": 2}  # as in cpu/src/rows.h
# The fields of ernie.kernels.types.LayerWeights with their axes, in the same order.
_LAYER_WEIGHTS = (
    *("q_DD", "k_DD", "v_DD", "out_DD", "inner_DF", "outer_FD"),
    *("q_bias_D", "k_bias_D", "v_bias_D", "out_bias_D", "inner_bias_F", "outer_bias_D"),
    *("gain1_D", "offset1_D", "gain2_D", "offset2_D"),
)


def sizes(**tensors: Tensor) -> dict[str, int]:
    """Return the size of each axis.  A tensor's name ends in its axes, one letter each, as in `weight_DE`.

    Raises UserError if a tensor has more or fewer axes, or if the size of an axis differs from an earlier tensor's.
    """
    found: dict[str, int] = {}
    for name, tensor in tensors.items():
        shape, axes, before = tensor.shape, name[name.rindex("_") + 1 :], len(found)
        fits = len(shape) == len(axes)
        for axis, size in zip(axes, shape, strict=False):
            fits = fits and found.setdefault(axis, size) == size
        if not fits:
            known = [*found][:before]
            expected = ", ".join(f"{axis} = {found[axis]}" if axis in known else axis for axis in axes)
            raise UserError(f"{name} has the shape {tuple(shape)}: expected ({expected})")
    return found


def check_layout(layout: Layout, rows: int, name: str = "layout") -> None:
    """Raise UserError unless the layout has `rows` tokens."""
    if layout.tokens != rows:
        raise UserError(f"{name} has {layout.tokens} tokens: expected {rows}, one for each row")


def check_activation(name: str) -> None:
    """Raise UserError for an unknown activation."""
    if name not in ACTIVATIONS:
        raise UserError(f"activation: '{name}': expected one of {', '.join(ACTIVATIONS)}")


def check_dropout(value: float) -> None:
    """Raise UserError unless `value` is the probability of dropping an element."""
    if not 0 <= value < 1:
        raise UserError(f"dropout: {value}: expected a probability from 0 to below 1")


def check_attention(layout: Layout, width: int, heads: int, mask: Mask | None) -> None:
    """Raise UserError unless `heads` divides the width and the mask covers the queries of the layout."""
    if heads < 1 or width % heads:
        raise UserError(f"heads: {heads}: expected a number that divides the width, {width}")
    if mask is not None and not len(mask.first) == len(mask.last) == layout.tokens:
        raise UserError(f"mask has {len(mask.first)} queries: expected {layout.tokens}, as in layout")


def check_layer(x_TD: Tensor, weights: Iterable[Tensor]) -> None:
    """Raise UserError if the weights of a Transformer layer do not fit one another or the input."""
    sizes(x_TD=x_TD, **dict(zip(_LAYER_WEIGHTS, weights, strict=True)))


def check_factors(weights: LayerWeights, factors: Mapping[str, Factors]) -> None:
    """Raise UserError if factors do not fit the matrices of a layer."""
    for name, (a_Dr, b_rE, _) in factors.items():
        sizes(**{f"{name}_DE": getattr(weights, name)}, a_Dr=a_Dr, b_rE=b_rE)


def row_indices(indices: np.ndarray, rows: int, what: str) -> np.ndarray:
    """Convert row indices (N,) to the int64 that the kernels read.  Raises UserError if one is out of range."""
    if indices.ndim != 1 or (indices.size and indices.dtype.kind not in "iu"):
        raise UserError(f"{what}: expected whole numbers of the shape (N,), found {indices.dtype} {indices.shape}")
    if indices.size and not 0 <= indices.min() <= indices.max() < rows:
        wrong = indices[(indices < 0) | (indices >= rows)][0]
        raise UserError(f"{what} {wrong}: expected a number from 0 to {rows - 1}")
    return np.ascontiguousarray(indices, np.int64)


def output_rows(rows: np.ndarray | Sequence[int], tokens: int) -> np.ndarray:
    """Convert the tokens that need outputs to int64.  Raises UserError unless they are in range and ascending."""
    if (np.diff(rows) <= 0).any():
        raise UserError("rows: expected the numbers of tokens, each one once, in ascending order")
    return row_indices(np.asarray(rows), tokens, "token")

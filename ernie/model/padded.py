"""Padded batches, as other libraries have them, to packed ones and back.

Legend: N sequences, L padded length, T packed tokens, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import paddle
from paddle import Tensor

from ernie.data.batch import Layout
from ernie.errors import UserError

Ids: TypeAlias = Tensor | np.ndarray | Sequence[Sequence[int]]  # (N, L)


@dataclass(frozen=True, eq=False)
class Padding:
    """Where the tokens of a padded batch of `shape` (N, L) stand: `index` (T,) are their slots among the N * L."""

    shape: tuple[int, int]
    layout: Layout
    index: Tensor

    @classmethod
    def of(cls, shape: Sequence[int], attention_mask: Tensor | None) -> Padding:
        """Read it from a mask, 1 for tokens and 0 for padding wherever it stands; None means no padding.

        Raises UserError for a sequence without tokens.
        """
        is_token = np.ones(shape, bool) if attention_mask is None else np.asarray(attention_mask.numpy()) != 0
        lengths = is_token.sum(axis=1)
        if (lengths == 0).any():
            raise UserError(f"attention_mask: sequence {int(np.argmin(lengths))} has no tokens")
        N, L = shape
        return cls((N, L), Layout.of_lengths(lengths), paddle.to_tensor(np.flatnonzero(is_token)))

    def pack(self, values_NL: Tensor | None) -> Tensor:
        """(N, L) -> (T,), zeros for None."""
        if values_NL is None:
            return paddle.zeros([self.layout.tokens], "int64")
        return paddle.gather(values_NL.reshape([-1]), self.index)

    def spread(self, x_TD: Tensor) -> Tensor:
        """(T, D) -> (N, L, D), zeros at padding."""
        (N, L), D = self.shape, x_TD.shape[-1]
        return paddle.scatter_nd(self.index.unsqueeze(-1), x_TD, [N * L, D]).reshape([N, L, D])


def read_ids(name: str, values: Ids) -> Tensor:
    """An argument of the model as a tensor.  Raises UserError for rows of several lengths and for fractions."""
    if isinstance(values, Tensor):
        return values
    try:
        array: np.ndarray = np.asarray(values)
    except ValueError:
        raise UserError(f"{name}: its rows differ in length; pad them, or have the tokenizer do it") from None
    if array.size and array.dtype.kind not in "biu":
        raise UserError(f"{name}: expected whole numbers, found {array.dtype}")
    return paddle.to_tensor(array.astype(np.int64))


def check_shapes(input_ids: Tensor, **others: Tensor | None) -> None:
    """Raise UserError unless `input_ids` is (N, L) and the others, where given, have its shape."""
    shape = list(input_ids.shape)
    if len(shape) != 2 or 0 in shape:
        raise UserError(f"input_ids has the shape {shape}, expected a batch of sequences: [N, L]")
    for name, other in others.items():
        if other is not None and list(other.shape) != shape:
            raise UserError(f"{name} has the shape {list(other.shape)}, expected that of input_ids, {shape}")

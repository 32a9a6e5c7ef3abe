"""Conversion between padded batches, as other libraries use them, and packed ones.

Legend: N sequences, L padded length, T packed tokens, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """The positions of the tokens in a padded batch of `shape` (N, L).

    `index` (T,) holds their flat indices among the N * L slots, or None if there is no padding.
    """

    shape: tuple[int, int]
    layout: Layout
    index: np.ndarray | None

    @classmethod
    def of(cls, shape: tuple[int, int], attention_mask: np.ndarray | None) -> Padding:
        """Derive the positions from a mask, 1 for tokens and 0 for padding, which may be anywhere; None means no
        padding.

        Raises UserError for other numbers, and for a sequence without tokens.
        """
        if attention_mask is not None and not np.isin(attention_mask, (0, 1)).all():
            found = attention_mask[~np.isin(attention_mask, (0, 1))].flat[0]
            raise UserError(f"attention_mask: expected 1 for tokens and 0 for padding, found {found}")
        if attention_mask is None or attention_mask.all():
            return cls(shape, Layout.of_lengths(np.full(*shape)), None)
        is_token = attention_mask != 0
        lengths = is_token.sum(axis=1)
        if (lengths == 0).any():
            raise UserError(f"attention_mask: sequence {int(np.argmin(lengths))} has no tokens")
        return cls(shape, Layout.of_lengths(lengths), np.flatnonzero(is_token))

    def pack(self, values_NL: np.ndarray | None) -> np.ndarray:
        """Pack values, (N, L) -> (T,); None gives zeros."""
        if values_NL is None:
            return np.zeros(self.layout.tokens, np.int64)
        values = values_NL.reshape(-1)
        return values if self.index is None else values[self.index]

    def spread(self, x_TD: Tensor) -> Tensor:
        """Pad vectors, (T, D) -> (N, L, D), with zeros."""
        (N, L), D = self.shape, x_TD.shape[-1]
        if self.index is None:
            return x_TD.reshape([N, L, D])
        return paddle.scatter_nd(paddle.to_tensor(self.index[:, None]), x_TD, [N * L, D]).reshape([N, L, D])


def read_ids(name: str, values: Ids) -> np.ndarray:
    """Convert an argument of the model to an integer array.

    Raises UserError for rows of differing lengths, for non-integers, and when Paddle traces instead of computing.
    """
    if isinstance(values, Mapping):
        raise UserError(f"{name}: found a batch with {', '.join(map(str, values))}; give its parts: model(**batch)")
    if not paddle.in_dynamic_mode():
        raise UserError("the model cannot be traced; 'ernie export' writes it for ONNX Runtime and Paddle's inference")
    try:
        array: np.ndarray = values.numpy() if isinstance(values, Tensor) else np.asarray(values)
    except ValueError:
        raise UserError(f"{name}: its rows differ in length; pad them, or have the tokenizer do it") from None
    if array.size and array.dtype.kind not in "biu":
        texts = "; model.tokenizer(texts) makes such a batch of texts" if array.dtype.kind == "U" else ""
        raise UserError(f"{name}: expected whole numbers, found {array.dtype}{texts}")
    return array.astype(np.int64, copy=False)


def check_shapes(input_ids: np.ndarray, **others: np.ndarray | None) -> tuple[int, int]:
    """Return the shape (N, L) of `input_ids`.  Raises UserError unless it is two-dimensional and shared by `others`."""
    shape = input_ids.shape
    if len(shape) != 2 or 0 in shape:
        raise UserError(f"input_ids has the shape {list(shape)}, expected a batch of sequences: [N, L]")
    for name, other in others.items():
        if other is not None and other.shape != shape:
            raise UserError(f"{name} has the shape {list(other.shape)}, expected that of input_ids, {list(shape)}")
    return shape

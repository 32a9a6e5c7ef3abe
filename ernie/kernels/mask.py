"""Attention masks as data: each query sees an interval of the keys of its sequence.

Legend: T packed queries, N sequences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ernie.data.batch import Layout


@dataclass(frozen=True, eq=False)
class Mask:
    """Each query sees the keys from `first` (T,) up to, not including, `last` (T,), counted within its sequence.

    Positions beyond the sequence are ignored; a query that sees no keys gets zeros.
    """

    first: np.ndarray
    last: np.ndarray

    def __post_init__(self) -> None:
        for name in ("first", "last"):  # int32 is what the kernels read
            within = np.clip(getattr(self, name), 0, np.iinfo(np.int32).max).astype(np.int32)
            object.__setattr__(self, name, within)

    @classmethod
    def causal(cls, layout: Layout) -> Mask:
        """Each token sees itself and all tokens before it."""
        return cls.window(layout, before=layout.longest, after=0)

    @classmethod
    def window(cls, layout: Layout, before: int, after: int) -> Mask:
        """Each token sees itself, `before` tokens before it and `after` tokens after it."""
        return cls(layout.positions - before, layout.positions + after + 1)

    @classmethod
    def chunk(cls, layout: Layout, size: int, before: int = 0) -> Mask:
        """Each token sees its own chunk of `size` tokens and the `before` chunks before that."""
        chunk_T = layout.positions // size
        return cls((chunk_T - before) * size, (chunk_T + 1) * size)

    @classmethod
    def prefix(cls, layout: Layout, lengths: np.ndarray) -> Mask:
        """Causal, except that the first `lengths` (N,) tokens of each sequence see one another."""
        last_T = np.maximum(layout.positions + 1, np.repeat(lengths, layout.lengths))
        return cls(np.zeros_like(last_T), last_T)

    @classmethod
    def until(cls, last: np.ndarray) -> Mask:
        """Each token sees the first `last` (T,) keys."""
        return cls(np.zeros_like(last), last)

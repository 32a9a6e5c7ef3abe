"""Which keys each query sees, as data: an interval of its sequence.

Legend: T packed queries, N sequences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ernie.data.batch import Layout


@dataclass(frozen=True, eq=False)
class Mask:
    """Each query sees the keys from `first` (T,) to before `last` (T,), counted from the start of its sequence.

    What lies outside the sequence is not there to be seen; a query that sees nothing gets zeros.
    """

    first: np.ndarray
    last: np.ndarray

    @classmethod
    def causal(cls, layout: Layout) -> Mask:
        """A token sees itself and what comes before it."""
        return cls.window(layout, before=layout.longest, after=0)

    @classmethod
    def window(cls, layout: Layout, before: int, after: int) -> Mask:
        """A token sees so many tokens before and after itself."""
        return cls.between(layout.positions - before, layout.positions + after + 1)

    @classmethod
    def chunk(cls, layout: Layout, size: int, before: int = 0) -> Mask:
        """Tokens come in chunks of `size`; one sees its own chunk and so many chunks before it."""
        chunk_T = layout.positions // size
        return cls.between((chunk_T - before) * size, (chunk_T + 1) * size)

    @classmethod
    def prefix(cls, layout: Layout, lengths: np.ndarray) -> Mask:
        """As causal, but the first `lengths` (N,) tokens of each sequence see one another."""
        reach_T = np.maximum(layout.positions + 1, np.repeat(lengths, layout.lengths))
        return cls.between(np.zeros_like(reach_T), reach_T)

    @classmethod
    def wait(cls, layout: Layout, k: int) -> Mask:
        """Token t (from 0) sees the first k + t keys: the read-write schedule of wait-k (Ma et al., 2019, STACL)."""
        return cls.until(layout.positions + k)

    @classmethod
    def until(cls, last: np.ndarray) -> Mask:
        """Each token sees the first `last` (T,) keys."""
        return cls.between(np.zeros_like(last), last)

    @classmethod
    def between(cls, first: np.ndarray, last: np.ndarray) -> Mask:
        """Each token sees the keys from `first` (T,) to before `last` (T,), those that lie within its sequence."""
        return cls(np.maximum(first, 0).astype(np.int32), np.maximum(last, 0).astype(np.int32))

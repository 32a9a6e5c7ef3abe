"""Keys and values of sequences in pages that sequences share, on a CPU.

A sequence is a list of pieces, each of which is a number of rows of a block of memory.  Rows that were written never
change, so that selecting, joining and splitting sequences copies nothing.  New rows are written behind the last piece,
into its block, by whoever claims that room first.  Any other continuation of the same sequence forks: it copies the
last piece, at most a page.  Pages are those of PagedAttention (Kwon et al., 2023, arXiv 2309.06180, section 4).

Legend: L layers, N sequences, T packed tokens, D width, R runs of rows.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from paddle import Tensor

from ernie.data.batch import Layout
from ernie.errors import UserError
from ernie.kernels.choose import runs_in_cpp
from ernie.kernels.cpu.pool import empty
from ernie.kernels.cpu.runs import copy_runs
from ernie.kernels.types import Runs

PAGE = 16  # rows that a sequence takes at a time
_FLOAT = np.dtype(np.float32).itemsize

Pairs = tuple[tuple[Tensor, Tensor], ...]  # keys and values (T, D) of each layer
_claiming = threading.Lock()


class Block:
    """Room for the keys and values of `rows` tokens in all layers: (L, 2, rows, D), of which the first are claimed."""

    __slots__ = ("_claimed", "_memory", "address", "rows")

    def __init__(self, rows: int, row_floats: int, claimed: int):
        self._memory = np.empty(rows * row_floats, np.float32)
        self.address = self._memory.ctypes.data
        self.rows, self._claimed = rows, claimed

    def claim(self, end: int, count: int) -> int:
        """Claim at most `count` rows from `end` on; return how many are: none if others have the first of them."""
        with _claiming:
            if self._claimed != end:
                return 0
            count = min(count, self.rows - end)
            self._claimed += count
            return count


class Piece(NamedTuple):
    """`rows` rows of a block, or of new tensors (T, D) if there is no block, from `first` on."""

    block: Block | None
    first: int
    rows: int


Pieces = tuple[Piece, ...]


def part(pieces: Pieces, begin: int, end: int) -> Pieces:
    """Return the pieces of the rows from `begin` up to, not including, `end`."""
    found = []
    for block, first, count in pieces:
        low, high = max(begin, 0), min(end, count)
        if low < high:
            found.append(Piece(block, first + low, high - low))
        begin, end = begin - count, end - count
    return tuple(found)


class Table:
    """Where the R pieces of some sequences lie in memory."""

    def __init__(self, sequences: Sequence[Pieces], width: int):
        row = width * _FLOAT
        self.offsets = np.array([0, *map(len, sequences)], np.int32).cumsum(dtype=np.int32)
        entries = [
            (first * row, 0, count, 1) if block is None else (block.address + first * row, block.rows * row, count, 0)
            for pieces in sequences
            for block, first, count in pieces
        ]
        # For each run: the address of its first layer's keys, or its place in bytes within a new tensor.  Then the
        # distance between the keys and the values of a layer, the number of rows, and whether it is in new tensors.
        self._start, self._plane, self.rows, self._is_new = np.array(entries, np.int64).reshape(-1, 4).T.copy()
        self._rows32 = self.rows.astype(np.int32)

    def at(self, layer: int, new: tuple[Tensor, Tensor] | None = None) -> Runs:
        """Return the runs of a layer; `new` are its new keys and values."""
        keys, values = self.addresses(range(2 * layer, 2 * layer + 2), new or ())
        return Runs(self.offsets, keys, values, self._rows32)

    def addresses(self, planes: range, new: Sequence[Tensor]) -> np.ndarray:
        """Return the addresses (P, R) of the runs in P planes; the keys and values of layer l are planes 2l and 2l + 1.

        `new` are the new tensors of these planes, if any.
        """
        found = self._start + np.array(planes)[:, None] * self._plane
        return found + np.array([[x.data_ptr()] for x in new]) * self._is_new if new else found


@dataclass(frozen=True, eq=False)
class Pages:
    """Keys and values of N sequences with L layers of width D, in pages."""

    sequences: tuple[Pieces, ...]
    layers: int
    width: int

    @classmethod
    def of_pairs(cls, layout: Layout, pairs: Pairs) -> Pages:
        """Copy tensors into blocks of their own.  Raises UserError if their shapes do not fit the layout."""
        shapes = {tuple(x.shape) for pair in pairs for x in pair}
        if len(shapes) > 1 or {len(shape) for shape in shapes} != {2}:
            raise UserError(f"keys and values of a cache: expected one shape (T, D), found {sorted(shapes)!s:.80}")
        rows, width = shapes.pop()
        if rows != layout.tokens:
            raise UserError(f"a cache has {rows} keys: expected {layout.tokens}, as in its layout")
        pages = cls(((),) * layout.sequences, len(pairs), width)
        return pages.appended(np.zeros(layout.sequences, np.int64), layout.starts, layout.lengths, pairs, exact=True)

    def check(self, layer: int, *tensors: Tensor) -> None:
        """Raise UserError unless there is such a layer, and the tensors are (T, D) in float32, as the pages."""
        if not layer < self.layers:
            raise UserError(f"a cache has {self.layers} layers: it cannot be used by a model with more")
        for x in tensors:
            if not runs_in_cpp(x) or x.shape[-1] != self.width:
                found = f"{x.dtype.name.lower()} {tuple(x.shape)}"
                raise UserError(f"found {found}: expected float32 (T, {self.width}), as in the cache")

    def select(self, sequences: Iterable[int]) -> Pages:
        """Select sequences, in this order; nothing is copied."""
        return Pages(tuple(self.sequences[n] for n in sequences), self.layers, self.width)

    def parts(self, begin: np.ndarray, end: np.ndarray) -> Pages:
        """Keep the rows (N,) from `begin` up to `end` of each sequence; nothing is copied."""
        sequences = zip(self.sequences, begin.tolist(), end.tolist(), strict=True)
        return Pages(tuple(part(*each) for each in sequences), self.layers, self.width)

    @cached_property
    def table(self) -> Table:
        """Where the rows lie in memory."""
        return Table(self.sequences, self.width)

    def pairs(self, layout: Layout) -> Pairs:
        """Copy all rows into new tensors, packed as in `layout`, which has the lengths of the sequences."""
        tensors = self._packed(layout, range(2 * self.layers))
        return tuple(zip(tensors[::2], tensors[1::2], strict=True))

    def values(self, layer: int, layout: Layout) -> Tensor:
        """Copy the values of a layer, packed as `pairs` does."""
        return self._packed(layout, range(2 * layer + 1, 2 * layer + 2))[0]

    def _packed(self, layout: Layout, planes: range) -> list[Tensor]:
        tensors = [empty([layout.tokens, self.width]) for _ in planes]
        first = np.cumsum(self.table.rows) - self.table.rows
        packed = Table([tuple(Piece(None, int(n), 0) for n in first)], self.width)
        sizes = np.tile(self.table.rows * self.width * _FLOAT, len(planes))
        _copy(packed.addresses(planes, tensors), self.table.addresses(planes, ()), sizes)
        return tensors

    def appended(
        self, begin: np.ndarray, first: np.ndarray, count: np.ndarray, new: Pairs, exact: bool = False
    ) -> Pages:
        """Drop the rows before `begin` (N,) of each sequence, and append `count` (N,) rows of `new`, from `first` on.

        With `exact`, blocks are no larger than what is written into them.
        """
        tensors = [x for pair in new for x in pair]
        self.check(len(new) - 1, *tensors)
        writer = _Writer(self.layers, self.width, exact)
        rows = zip(self.sequences, begin.tolist(), first.tolist(), count.tolist(), strict=True)
        sequences = tuple(
            writer.append(part(pieces, start, 1 << 62) if start else pieces, row, more)
            for pieces, start, row, more in rows
        )
        to, of = Table([tuple(writer.to)], self.width), Table([tuple(writer.of)], self.width)
        _copy(self._addresses(to), of.addresses(range(2 * self.layers), tensors), self._sizes(of))
        return Pages(sequences, self.layers, self.width)

    def _addresses(self, table: Table) -> np.ndarray:
        return table.addresses(range(2 * self.layers), ())

    def _sizes(self, table: Table) -> np.ndarray:
        return np.tile(table.rows * (self.width * _FLOAT), 2 * self.layers)


def _copy(to: np.ndarray, of: np.ndarray, sizes: np.ndarray) -> None:
    if len(sizes):
        copy_runs(np.ascontiguousarray(to).ravel(), np.ascontiguousarray(of).ravel(), sizes)


class _Writer:
    """Finds room for new rows, and collects what has to be copied there: the pieces `of` to the pieces `to`."""

    def __init__(self, layers: int, width: int, exact: bool):
        self.to: list[Piece] = []
        self.of: list[Piece] = []
        self._row_floats, self._exact = 2 * layers * width, exact

    def append(self, pieces: Pieces, first: int, count: int) -> Pieces:
        """Return the pieces of a sequence to which `count` rows of the new tensors are appended, from `first` on."""
        if not count:
            return pieces
        if pieces:
            pieces, written = self._behind_the_last(pieces, first, count)
            first, count = first + written, count - written
        found = list(pieces)
        while count:
            here = min(count, PAGE)
            block = Block(here if self._exact else PAGE, self._row_floats, here)
            found.append(self._written(block, 0, Piece(None, first, here)))
            first, count = first + here, count - here
        return tuple(found)

    def _behind_the_last(self, pieces: Pieces, first: int, count: int) -> tuple[Pieces, int]:
        """Write behind the last piece, or behind a copy of it if others did; return the pieces and how many rows."""
        *others, last = pieces
        block, end = last.block, last.first + last.rows
        assert block is not None
        if end == block.rows:
            return pieces, 0
        here = block.claim(end, count)
        if not here:
            here = min(count, PAGE - last.rows)
            block = Block(PAGE, self._row_floats, last.rows + here)
            last, end = self._written(block, 0, last), last.rows
        self._written(block, end, Piece(None, first, here))
        return (*others, Piece(block, last.first, last.rows + here)), here

    def _written(self, block: Block, at: int, of: Piece) -> Piece:
        to = Piece(block, at, of.rows)
        self.to.append(to)
        self.of.append(of)
        return to

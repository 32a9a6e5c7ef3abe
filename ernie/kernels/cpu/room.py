"""Memory for large results, used again by the next batch, whose sizes are a little different.

Freed to the C library it would be cut into pieces: Paddle asks for addresses that are multiples of 4,096, for which
glibc takes more than is asked for, fills the gap with something small, and never finds the whole place again.  With
batches of varying length a training process so grew to three times of what it needs; given back to the kernel instead,
every page would have to be cleared again.
"""

from __future__ import annotations

import math
import mmap
import threading
import weakref
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import paddle
from paddle import Tensor

_LARGE = 1 << 17  # bytes; what is smaller comes from the C library
_WIDER = 1.5  # how many times larger than was asked for a piece may be
_PATIENCE = 1 << 14  # requests after which a piece that nobody took is given back
_TYPES: dict[paddle.dtype, Any] = {paddle.float32: np.dtype(np.float32), paddle.uint8: np.dtype(np.uint8)}


def empty(shape: Sequence[int], dtype: paddle.dtype = paddle.float32) -> Tensor:
    """A tensor whose values are still to be written; its memory is the next one's when nobody has the tensor."""
    count = math.prod(shape)
    if dtype not in _TYPES or count * _TYPES[dtype].itemsize < _LARGE:
        return paddle.empty(shape, dtype)
    piece = _pool.take(count * _TYPES[dtype].itemsize)
    values = np.frombuffer(piece, _TYPES[dtype], count).reshape(shape)
    # Only the tensor has this array: it goes with the tensor's last owner, be that in Python or in C++.
    _pool.lend(piece, values)
    return paddle.from_dlpack(values)


def empty_like(x: Tensor) -> Tensor:
    """As `empty`, of another's shape and type."""
    return empty(x.shape, x.dtype)


def taken() -> int:
    """The bytes that tensors have at present."""
    return _pool.count()


class _Loan(weakref.ref[np.ndarray]):
    """An array, for as long as there is one, and the piece that it lies in."""

    __slots__ = ("piece",)
    piece: mmap.mmap


class _Pool:
    """Free pieces in the order of their sizes, each with the number of requests that there were when it was freed."""

    def __init__(self) -> None:
        self._free: list[tuple[int, int, mmap.mmap]] = []
        self._lent: dict[int, _Loan] = {}
        # Python may free a tensor at any moment, also in the midst of a request: what comes back then waits here.
        self._returned: deque[_Loan] = deque()
        self._requests, self._taken = 0, 0  # the latter in bytes
        self._lock = threading.Lock()

    def take(self, size: int) -> mmap.mmap:
        """The smallest free piece that is large enough, and not much too large; else a new one."""
        with self._lock:
            self._sort_in()
            piece = self._found(size) or _new(size)
            self._taken += len(piece)
        return piece

    def lend(self, piece: mmap.mmap, array: np.ndarray) -> None:
        """The piece comes back when the array goes."""
        # By a function of C's alone: Paddle holds a lock of its own while a tensor goes, and a thread that waits for
        # that lock holds Python's, which Python code would let go of now and then, and never get back.
        loan = _Loan(array, self._returned.append)
        loan.piece = piece
        self._lent[id(loan)] = loan

    def count(self) -> int:
        """The bytes of all pieces that are taken."""
        with self._lock:
            self._sort_in()
            return self._taken

    def _sort_in(self) -> None:
        while self._returned:
            loan = self._returned.popleft()
            del self._lent[id(loan)]
            piece = loan.piece
            self._taken -= len(piece)
            insort(self._free, (len(piece), self._requests, piece), key=_size)

    def _found(self, size: int) -> mmap.mmap | None:
        self._requests += 1
        place = bisect_left(self._free, size, key=_size)
        if place < len(self._free) and self._free[place][0] <= _WIDER * size:
            return self._free.pop(place)[2]
        if place and _WIDER * self._free[place - 1][0] >= size:
            self._free.pop(place - 1)  # nearly large enough: the new one is in its place
        self._free = [entry for entry in self._free if self._requests - entry[1] < _PATIENCE]
        return None


def _new(size: int) -> mmap.mmap:
    step = 1 << max(12, size.bit_length() - 4)  # room for up to an eighth more
    piece = mmap.mmap(-1, -(-size // step) * step, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        piece.madvise(mmap.MADV_HUGEPAGE)
    return piece


def _size(entry: tuple[int, int, mmap.mmap]) -> int:
    return entry[0]


_pool = _Pool()

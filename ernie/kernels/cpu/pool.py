"""A memory pool for large results: the next batch, whose sizes differ a little, reuses their memory.

Memory that goes back to the C library is fragmented.  Paddle asks for addresses that are multiples of 4,096; glibc
allocates more than requested for them and fills the gap with something small.  It never finds the whole block again.
With batches of varying length, a training process thus grew to three times what it needs.  Returned to the kernel
instead, every page would have to be zeroed again.
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

_LARGE = 1 << 17  # bytes; smaller tensors come from the C library
_MAX_RATIO = 1.5  # how many times larger than requested a block may be
_PATIENCE = 1 << 14  # requests after which an unused block is returned to the system
_TYPES: dict[paddle.dtype, Any] = {paddle.float32: np.dtype(np.float32), paddle.uint8: np.dtype(np.uint8)}


def empty(shape: Sequence[int], dtype: paddle.dtype = paddle.float32) -> Tensor:
    """Return an uninitialized tensor; its memory is reused once nothing refers to the tensor any more."""
    count = math.prod(shape)
    if dtype not in _TYPES or count * _TYPES[dtype].itemsize < _LARGE:
        return paddle.empty(shape, dtype)
    block = _pool.take(count * _TYPES[dtype].itemsize)
    values = np.frombuffer(block, _TYPES[dtype], count).reshape(shape)
    # Only the tensor refers to this array: it is freed with the tensor's last owner, be that in Python or in C++.
    _pool.lend(block, values)
    return paddle.from_dlpack(values)


def empty_like(x: Tensor) -> Tensor:
    """As `empty`, with the shape and type of another tensor."""
    return empty(x.shape, x.dtype)


def bytes_in_use() -> int:
    """Return the bytes of the pool that tensors use at present."""
    return _pool.bytes_in_use()


class _Loan(weakref.ref[np.ndarray]):
    """A weak reference to an array, with the block that it lies in."""

    __slots__ = ("block",)
    block: mmap.mmap


class _Pool:
    """Free blocks, sorted by size, each with the number of requests made before it was freed."""

    def __init__(self) -> None:
        self._free: list[tuple[int, int, mmap.mmap]] = []
        self._lent: dict[int, _Loan] = {}
        # Python may free a tensor at any moment, even during a request: returned blocks wait here.
        self._returned: deque[_Loan] = deque()
        self._requests, self._bytes_in_use = 0, 0
        self._lock = threading.Lock()

    def take(self, size: int) -> mmap.mmap:
        """Return the smallest free block that is large enough but not much too large, else a new one."""
        with self._lock:
            self._collect_returned()
            block = self._find(size) or _new_block(size)
            self._bytes_in_use += len(block)
        return block

    def lend(self, block: mmap.mmap, array: np.ndarray) -> None:
        """Take the block back when the array is freed."""
        # The callback must be a C function.  Paddle holds a lock of its own while it frees a tensor, and a thread that
        # waits for that lock holds the GIL.  Python code would release the GIL now and then, and never get it back.
        loan = _Loan(array, self._returned.append)
        loan.block = block
        self._lent[id(loan)] = loan

    def bytes_in_use(self) -> int:
        """Return the bytes of all blocks in use."""
        with self._lock:
            self._collect_returned()
            return self._bytes_in_use

    def _collect_returned(self) -> None:
        while self._returned:
            loan = self._returned.popleft()
            del self._lent[id(loan)]
            block = loan.block
            self._bytes_in_use -= len(block)
            insort(self._free, (len(block), self._requests, block), key=_size)

    def _find(self, size: int) -> mmap.mmap | None:
        self._requests += 1
        index = bisect_left(self._free, size, key=_size)
        if index < len(self._free) and self._free[index][0] <= _MAX_RATIO * size:
            return self._free.pop(index)[2]
        if index and _MAX_RATIO * self._free[index - 1][0] >= size:
            self._free.pop(index - 1)  # nearly large enough: the new block replaces it
        self._free = [entry for entry in self._free if self._requests - entry[1] < _PATIENCE]
        return None


def _new_block(size: int) -> mmap.mmap:
    step = 1 << max(12, size.bit_length() - 4)  # rounds up by at most an eighth
    block = mmap.mmap(-1, -(-size // step) * step, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)
    return block


def _size(entry: tuple[int, int, mmap.mmap]) -> int:
    return entry[0]


_pool = _Pool()

"""Arrays of the host as tensors of the device: each in a copy of its own, or many of them in one.

A GPU computes while the host prepares what comes next.  But it first ends all that it has been given before it takes an
array from ordinary memory.  All arrays of a step are therefore sent ahead of it, joined in pinned memory, from which a
copy waits for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np
import paddle
from paddle import Tensor

_TYPES = ("int64", "float32")  # each has a copy of its own


class _Part:
    """An array, and the part of a copy that holds its elements."""

    def __init__(self, array: np.ndarray, copy: Tensor, first: int) -> None:
        self.array, self._copy, self._first = array, copy, first

    def has(self, array: np.ndarray) -> bool:
        """Whether another array that begins at the same address is this one, or its beginning."""
        return array.dtype == self.array.dtype and array.size <= self.array.size and array.flags.c_contiguous

    def beginning(self, shape: tuple[int, ...], size: int) -> Tensor:
        """Return the first `size` elements on the device, without a copy."""
        return self._copy._slice(self._first, self._first + size).reshape(list(shape))


_sent: ContextVar[dict[int, _Part]] = ContextVar("sent", default={})  # noqa: B039 - never changed in place


def on_device(array: np.ndarray) -> Tensor:
    """Return an array as a tensor on the device: the part of a copy that was sent ahead, else a copy of its own.

    Within `Uploads.ahead` the device itself fills an array of equal elements.  A part shares its memory with others: do
    not change it in place.
    """
    if not (sent := _sent.get()) or not array.size:
        return paddle.to_tensor(array)
    if (part := sent.get(array.ctypes.data)) is not None and part.has(array):
        return part.beginning(array.shape, array.size)
    if (array == (first := array.flat[0])).all():
        return paddle.full(list(array.shape), first.item(), array.dtype.name)
    return paddle.to_tensor(array)


class Uploads:
    """Sends the arrays of a step to a GPU ahead of it.  On a CPU it does nothing.

    It keeps the pinned memory of a step until the next one, by when the copies have been made.
    """

    def __init__(self) -> None:
        self._pinned: list[Tensor] = []

    @contextmanager
    def ahead(self, arrays: Iterable[np.ndarray]) -> Iterator[None]:
        """Send arrays of int64 and float32.  Inside, `on_device` finds them and their beginnings, by their addresses.

        They must not be changed inside.  Other types are left to `on_device`.
        """
        if paddle.get_device() == "cpu":
            yield
            return
        before = _sent.set(self._send(arrays))
        try:
            yield
        finally:
            _sent.reset(before)

    def _send(self, arrays: Iterable[np.ndarray]) -> dict[int, _Part]:
        self._pinned, sent = [], {}
        by_address: dict[int, np.ndarray] = {}
        for array in arrays:
            known = by_address.get(array.ctypes.data)
            if array.flags.c_contiguous and (known is None or known.size < array.size):
                by_address[array.ctypes.data] = array
        for kind in _TYPES:
            chosen = [array for array in by_address.values() if array.dtype == kind and array.size]
            if not chosen:
                continue
            joined = np.concatenate([array.reshape(-1) for array in chosen])
            self._pinned.append(paddle.to_tensor(joined, place=paddle.CUDAPinnedPlace()))
            copy, first = self._pinned[-1].cuda(blocking=False), 0
            for array in chosen:
                sent[array.ctypes.data] = _Part(array, copy, first)
                first += array.size
        return sent

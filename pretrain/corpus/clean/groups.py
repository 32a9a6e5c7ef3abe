"""Rows with equal keys: in memory, or of any number of rows in files, with a bounded number of them in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from pretrain.corpus.clean.base import Taken

AT_ONCE = 1 << 20  # rows in memory


def blocks(size: int, step: int = 1 << 16) -> Iterator[slice]:
    """Yield slices of at most `step` that cover `size` rows."""
    return (slice(start, min(start + step, size)) for start in range(0, size, step))


def repeats(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the positions of keys (n,) or (n, c) that repeat an earlier one, of the last before, and of the first."""
    keys = keys.reshape(len(keys), *keys.shape[1:] or [1])
    order = np.lexsort(keys.T)  # which is stable
    again = (keys[order[1:]] == keys[order[:-1]]).all(axis=1)
    starts = np.concatenate(([0], np.where(again, 0, np.arange(1, len(keys))))) if len(keys) else order
    firsts = order[np.maximum.accumulate(starts)]
    return order[1:][again], order[:-1][again], firsts[1:][again]


def first_equal(taken: Taken, width: int) -> np.ndarray:
    """Return for each note (n,) the position of the first one whose first `width` values, as bits, are the same.

    Notes that do not count are their own first.  The result is mapped into memory, as are the notes.  Notes are put
    into files by their values, so that equal ones are in the same file, and each file is sorted.
    """
    size, step = len(taken.notes), AT_ONCE
    firsts = zeros(taken.folder / "firsts", np.dtype(np.int64), size)
    shares = [taken.folder / f"share-{number}" for number in range(size // step + 1)]
    for path in shares:
        path.write_bytes(b"")
    for block in blocks(size, step):
        rows = firsts[block] = np.arange(block.start, block.stop)
        notes = np.array(taken.notes[block])
        keyed = np.column_stack((notes["values"][:, :width], rows.astype(np.uint64)))[taken.counts(notes["document"])]
        share = keyed[:, 0] % np.uint64(len(shares))
        order = np.argsort(share, kind="stable")
        ends = np.cumsum(np.bincount(share.astype(np.int64), minlength=len(shares)))
        for path, some in zip(shares, np.split(keyed[order], ends[:-1]), strict=True):
            if len(some):
                with path.open("ab") as file:
                    file.write(some.tobytes())
    for path in shares:
        keyed = np.fromfile(path, np.uint64).reshape(-1, width + 1)
        later, _, first = repeats(keyed[:, :width])
        firsts[keyed[later, -1].astype(np.int64)] = keyed[first, -1].astype(np.int64)
        path.unlink()
    return firsts


def mapped(path: Path, dtype: np.dtype[Any]) -> np.ndarray:
    """Return the rows in a file, mapped into memory."""
    return np.memmap(path, dtype, "r") if path.stat().st_size else np.zeros(0, dtype)  # which cannot be mapped


def zeros(path: Path, dtype: np.dtype[Any], size: int) -> np.ndarray:
    """Return an array (size,) of zeros in a new file, mapped into memory."""
    return np.memmap(path, dtype, "w+", shape=size) if size else np.zeros(0, dtype)

"""Rows with equal keys: in memory, or of any number of rows in files, with a bounded number of them in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from pretrain.corpus.clean.base import Decision, Taken
from pretrain.corpus.clean.mapped import mapped, zeros

AT_ONCE = 1 << 18  # rows in memory


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


def equal_keys(
    folder: Path, keyed: Iterable[np.ndarray], size: int
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the rows whose key an earlier row has, with the last row before and the first row that have it.

    `keyed` are parts (k, c + 1) of keys and, in the last column, the numbers of rows, ascending; of all there are at
    most `size`.  Rows are put into files by their keys, so that equal ones are in the same file, and each file is
    sorted.  The keys are hashes, or begin with one.
    """
    shares = [folder / f"share-{number}" for number in range(size // AT_ONCE + 1)]
    for path in shares:
        path.write_bytes(b"")
    width = 0
    for part in keyed:
        width = part.shape[1]
        share = part[:, 0] % np.uint64(len(shares))
        order = np.argsort(share, kind="stable")
        ends = np.cumsum(np.bincount(share.astype(np.int64), minlength=len(shares)))
        for path, some in zip(shares, np.split(part[order], ends[:-1]), strict=True):
            if len(some):
                with path.open("ab") as file:
                    file.write(some.tobytes())
    for path in shares:
        rows = np.fromfile(path, np.uint64)
        path.unlink()
        if len(rows):
            rows = rows.reshape(-1, width)
            number = rows[:, -1].astype(np.int64)
            later, before, first = repeats(rows[:, :-1])
            yield number[later], number[before], number[first]


def first_equal(taken: Taken, width: int) -> np.ndarray:
    """Return for each note (n,) the position of the first one whose first `width` values, as bits, are the same.

    Notes that do not count are their own first.  The result is mapped into memory.
    """
    size = taken.size
    firsts = own_positions(taken.folder / "firsts", size)
    keyed = (
        np.column_stack((notes["values"][:, :width], rows.astype(np.uint64)))
        for rows, notes in taken.blocks(blocks(size))
    )
    for later, _, first in equal_keys(taken.folder, keyed, size):
        firsts[later] = first
    return firsts


def own_positions(path: Path, size: int) -> np.ndarray:
    """Return the numbers below `size` in a new file, mapped into memory."""
    numbers = zeros(path, np.dtype(np.uint32 if size < 1 << 32 else np.int64), size)
    for block in blocks(size):
        numbers[block] = np.arange(block.start, block.stop)
    return numbers


def written(path: Path, rows: Iterable[np.ndarray], width: int) -> Decision:
    """Return rows (k, `width`) of documents and findings, mapped into memory from a file."""
    made = path.with_name(f"{path.name}.new")
    with made.open("wb") as file:
        for some in rows:
            file.write(some.astype("<i8").tobytes())
    made.replace(path)  # findings of another filter may be mapped from the file of this name
    found = mapped(path, np.dtype(np.int64)).reshape(-1, width)
    return Decision(found[:, 0], found[:, 1:])

"""One run at a time in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ernie.errors import UserError

LOCK = ".lock"
_PATIENCE = 1.0  # seconds: one that was killed takes a moment to be gone


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other runs out of `folder` meanwhile.  The operating system ends that with the process, however it ends.

    Raises UserError when another run is in it.  A file system that has no locks keeps none out.
    """
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=_PATIENCE)
    except Timeout:
        raise UserError(
            f"{folder}: another process is at work on the run in this folder. Wait for its end, or give another "
            "--output."
        ) from None
    except NotImplementedError:  # what the library says of such a file system
        yield
        return
    try:
        yield
    finally:
        lock.release()

"""A lock that allows one run at a time in a folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from ernie.errors import UserError

LOCK = ".lock"
_PATIENCE = 1.0  # seconds: a killed process takes a moment to exit


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on `folder`.  The operating system releases it when the process ends, however it ends.

    Raises UserError if another run holds it.  On a file system without locks this does nothing.
    """
    if (folder / LOCK).is_symlink():  # filelock would empty its target before 3.20.3
        raise UserError(f"{folder / LOCK}: is a link, perhaps a stranger's; remove it")
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=_PATIENCE)
    except Timeout:
        raise UserError(
            f"{folder}: another process is at work on the run in this folder. Wait for its end, or give another "
            "--output."
        ) from None
    except NotImplementedError:  # how filelock reports a file system without locks
        yield
        return
    try:
        yield
    finally:
        lock.release()

"""The folder of a run, in pretraining and in fine-tuning: its files, its lock, and which run it belongs to."""

from __future__ import annotations

import errno
import json
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ernie.atomic import check_within, make_folder, put_text
from ernie.config import differences, dump, to_dict
from ernie.errors import Remark, UserError

CONFIG, ORIGIN, CHECKPOINTS, MODEL, CARD = "config.yaml", "origin.json", "checkpoints", "model", "README.md"
LOCK = ".lock"
_TIMEOUT = 1.0  # seconds: a killed process takes a moment to exit
# How file systems say that they have no locks: NFS without its lock daemon gives the first, others the rest.
_LOCKLESS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP)


@contextmanager
def run_lock(folder: Path) -> Iterator[None]:
    """Hold an exclusive lock on `folder`.  The operating system releases it when the process ends, however it ends.

    Raises UserError if another run holds it.  On a file system without locks a Remark is all that it gives.
    """
    if (folder / LOCK).is_symlink():  # filelock would empty its target before 3.20.3
        raise UserError(f"{folder / LOCK}: is a link, perhaps a stranger's; remove it")
    lock = FileLock(folder / LOCK)
    try:
        lock.acquire(timeout=_TIMEOUT)
    except Timeout:
        raise UserError(
            f"{folder}: another process is at work on the run in this folder. Wait for its end, or give another "
            "--output."
        ) from None
    except (NotImplementedError, OSError) as error:  # filelock has the first for some of these
        if isinstance(error, OSError) and error.errno not in _LOCKLESS:
            raise
        warnings.warn(
            f"{folder}: its file system has no locks, so nothing keeps a second run out of this folder", Remark, 2
        )
        yield
        return
    try:
        yield
    finally:
        lock.release()


@contextmanager
def locked_folder(folder: Path, inner: Sequence[str]) -> Iterator[None]:
    """Create the folder of a run if necessary, and hold its lock.

    Raises UserError if another run holds it, or if one of its `inner` folders is a link that leads out of it.
    """
    make_folder(folder)
    for name in inner:
        check_within(folder, folder / name)
    with run_lock(folder):
        yield


def write_config(folder: Path, config: Any) -> None:
    """Write the resolved configuration of a run."""
    put_text(folder / CONFIG, dump(config))


def write_origin(folder: Path, record: Mapping[str, Any]) -> None:
    """Write what a run was made from, and how."""
    put_text(folder / ORIGIN, json.dumps(record, indent=2) + "\n")


def changed_keys(before: Any, now: Any, free: Collection[str]) -> dict[str, tuple[Any, Any]]:
    """Return the keys in which two configurations differ, each with its old and new value.

    Those that are `free` to differ, and the keys below them, are left out.
    """
    return {
        key: values
        for key, values in differences(to_dict(before), to_dict(now)).items()
        if not any(key == name or key.startswith(f"{name}.") for name in free)
    }


def another_configuration(folder: Path, changed: Mapping[str, tuple[Any, Any]]) -> str:
    """Return the sentence that a folder holds a run of another configuration, with the keys that differ."""
    lines = "\n".join(f"  {key}: was {old}, is {new}" for key, (old, new) in changed.items())
    return f"{folder}: holds a run of another configuration:\n{lines}\n"

"""Atomic writes of folders and files: filled under a temporary name in the same folder, then renamed."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from ernie.errors import UserError

PARTIAL = ".partial"  # suffix of the name of a file or folder that is being written


def make_folder(folder: str | Path) -> Path:
    """Create the folder if necessary and return its path.  Raises UserError if it cannot be created."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"{folder}: there is a file of that name, or of its parent's; give another folder") from None
    except OSError as error:
        if disk_full(error):
            raise
        raise UserError(f"{folder}: cannot be created ({error.strerror}); give another folder") from None
    return folder


def partial_folder(place: Path) -> Path:
    """Return the temporary folder to fill for `place`, not yet created: `NAME.partial-PID`.

    Cleans up what killed processes left next to `place`: partial folders are removed, and a folder that was about to be
    replaced is restored if its successor never arrived.  If `place` is a symbolic link, its target is used instead.
    Raises UserError for the current folder.
    """
    place = _resolved(place)
    for leftover in _left_by_dead_processes(place, "old"):
        if place.exists():
            shutil.rmtree(leftover)
        else:
            leftover.rename(place)
    for leftover in _left_by_dead_processes(place, "partial"):
        shutil.rmtree(leftover)
    return _temporary(place, "partial")


def put(folder: Path, place: Path, check: Callable[[], None] | None = None) -> None:
    """Move a folder to `place`.  An existing folder there is kept until the new one has replaced it.

    `check` raises UserError if `place` may not be replaced, because something appeared there while the folder was being
    filled.  In that case the folder is moved to an unused name next to it, which the error message gives.
    """
    place = _resolved(place)
    if check is not None:
        try:
            check()
        except UserError as error:
            kept = folder.rename(_unused(place))
            raise UserError(f"{error}\nWhat was made meanwhile is not lost: it is in {kept}") from None
    if not place.exists():
        folder.rename(place)
        return
    old = place.rename(_temporary(place, "old"))
    try:
        folder.rename(place)
    except BaseException:
        old.rename(place)
        raise
    shutil.rmtree(old)


def check_absent(place: Path) -> None:
    """Raise UserError unless `place` does not exist or is an empty folder."""
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise UserError(f"{place}: is there already; give a new folder")


def check_free(place: Path, what: str, mark: str, own: Collection[str], overwrite: bool) -> None:
    """Raise UserError unless a `what` may be written to `place`, the folder given as --output.

    It must not exist or be empty.  With `overwrite` it may also hold another `what`, which is recognized by the file
    `mark`, and nothing besides files of the names `own`.
    """
    if not place.exists():
        return
    if not place.is_dir():
        raise UserError(f"{place}: is a file; --output names the folder of the {what}")
    names = sorted(path.name for path in place.iterdir())
    if not names:
        return
    if mark not in names:
        raise UserError(f"{place}: is not empty and holds no {what}. Give a new folder as --output.")
    if foreign := [name for name in names if name not in own]:
        raise UserError(f"{place}: holds '{foreign[0]}', too, which would be lost. Give a new folder as --output.")
    if not overwrite:
        raise UserError(f"{place}: holds a {what} already. Give --overwrite to replace it, or another --output.")


@contextmanager
def disk_guard(place: Path, meaning: str) -> Iterator[None]:
    """Raise UserError if the disk is full while `place` is written; `meaning` states the consequence."""
    try:
        yield
    except Exception as error:
        if disk_full(error):
            raise UserError(
                f"{place}: the disk is full; {meaning}. Free some space and run the same command again."
            ) from None
        raise


def final_name(path: str) -> str:
    """Return a path as its readers will know it: without the suffixes of what is being written, for messages."""
    return re.sub(rf"{re.escape(PARTIAL)}(-\d+)?(?=[/\\]|$)", "", path)


def disk_full(error: BaseException) -> bool:
    """Whether an error was caused by a full disk or quota."""
    # safetensors raises an exception of its own for I/O errors, with the operating system's message in it.
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return full or "No space left on device" in str(error)


def put_text(path: Path, text: str) -> None:
    """Write a text file atomically, as UTF-8; see `replacing`."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the temporary path of a file to write, which then replaces `path`.

    After an exception, or a kill at any moment, `path` has either the old or the new content.
    """
    partial = path.with_name(f"{path.name}{PARTIAL}")
    yield partial
    partial.replace(path)


def _resolved(place: Path) -> Path:
    if place.resolve() == Path.cwd():
        raise UserError(f"{place}: is the current folder, which cannot be replaced as a whole; give another one")
    return place.resolve() if place.is_symlink() else place


def _temporary(place: Path, what: str) -> Path:
    return place.with_name(f"{place.name}.{what}-{os.getpid()}")


def _unused(place: Path) -> Path:
    """Return an unused name next to `place`, which no later run cleans up."""
    names = (place.with_name(f"{place.name}.made-{number}") for number in count(1))
    return next(name for name in names if not name.exists())


def _left_by_dead_processes(place: Path, what: str) -> list[Path]:
    pattern = re.compile(rf"{re.escape(place.name)}\.{what}-(\d+)")
    if not place.parent.is_dir():
        return []
    names = ((path, pattern.fullmatch(path.name)) for path in place.parent.iterdir())
    return [path for path, match in names if match and not _is_running(int(match[1]))]


def _is_running(pid: int) -> bool:
    """Whether another process with this id is running."""
    if pid == os.getpid():
        return False  # in a container every run may have the same id
    if os.name == "nt":
        return True  # os.kill would end the process there
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True

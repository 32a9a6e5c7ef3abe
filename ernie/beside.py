"""Folders and files that appear whole or not at all: filled beside their place, then moved there."""

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

PARTIAL = ".partial"  # how the name of a file ends that is being written


def make_folder(folder: str | Path) -> Path:
    """The folder, made if need be.  Raises UserError where there is a file of that name."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"{folder}: there is a file of that name, or of its parent's; give another folder") from None
    return folder


def beside(place: Path) -> Path:
    """The folder to fill for `place`, not made yet: `NAME.partial-PID`.

    Clears away what killed processes left beside `place`: half-filled folders are removed, and a folder that was
    about to be replaced is put back if its successor never came.  Where `place` is a link, all this is done where it
    leads to.  Raises UserError for the folder that one is in.
    """
    place = _led_to(place)
    for leftover in _of_dead_processes(place, "old"):
        if place.exists():
            shutil.rmtree(leftover)
        else:
            leftover.rename(place)
    for leftover in _of_dead_processes(place, "partial"):
        shutil.rmtree(leftover)
    return _named(place, "partial")


def put(folder: Path, place: Path, check: Callable[[], None] | None = None) -> None:
    """Move a folder to `place`.  One that stands there is kept until the new one has taken its place.

    `check` raises UserError where `place` may not be taken: what came there while the folder was filled stays.  Then
    the folder gets a name of its own beside it, which is told.
    """
    place = _led_to(place)
    if check is not None:
        try:
            check()
        except UserError as error:
            kept = folder.rename(_unused(place))
            raise UserError(f"{error}\nWhat was made meanwhile is not lost: it is in {kept}") from None
    if not place.exists():
        folder.rename(place)
        return
    old = place.rename(_named(place, "old"))
    try:
        folder.rename(place)
    except BaseException:
        old.rename(place)
        raise
    shutil.rmtree(old)


def check_absent(place: Path) -> None:
    """Raise UserError unless there is nothing at `place`, or an empty folder."""
    if place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise UserError(f"{place}: is there already; give a new folder")


def check_free(place: Path, what: str, mark: str, own: Collection[str], overwrite: bool) -> None:
    """Raise UserError unless a `what` may be put to `place`, the folder that --output names.

    There may be nothing, or an empty folder; with `overwrite` also another such thing, which the file `mark` tells, and
    nothing that is not its `own`, by name.
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
def room(place: Path, meaning: str) -> Iterator[None]:
    """Raise UserError where the disk is full while `place` is written; `meaning` says what that means."""
    try:
        yield
    except Exception as error:
        if disk_full(error):
            raise UserError(
                f"{place}: the disk is full; {meaning}. Make room and give the same command again."
            ) from None
        raise


def disk_full(error: BaseException) -> bool:
    """Whether an error is for want of room."""
    # safetensors reports I/O errors as its own exception, with the operating system's words in it.
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return full or "No space left on device" in str(error)


def put_text(path: Path, text: str) -> None:
    """Write a file as UTF-8; a kill at any moment leaves it as it was or as it shall be."""
    partial = path.with_name(f"{path.name}{PARTIAL}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def _led_to(place: Path) -> Path:
    if place.resolve() == Path.cwd():
        raise UserError(
            f"{place}: is the folder that you are in; give another one, which is moved into its place whole"
        )
    return place.resolve() if place.is_symlink() else place


def _named(place: Path, what: str) -> Path:
    return place.with_name(f"{place.name}.{what}-{os.getpid()}")


def _unused(place: Path) -> Path:
    """A name beside `place` that nothing has, and that no later run clears away."""
    names = (place.with_name(f"{place.name}.made-{number}") for number in count(1))
    return next(name for name in names if not name.exists())


def _of_dead_processes(place: Path, what: str) -> list[Path]:
    pattern = re.compile(rf"{re.escape(place.name)}\.{what}-(\d+)")
    if not place.parent.is_dir():
        return []
    names = ((path, pattern.fullmatch(path.name)) for path in place.parent.iterdir())
    return [path for path, match in names if match and not _runs(int(match[1]))]


def _runs(pid: int) -> bool:
    """Whether another process has this id."""
    if pid == os.getpid():
        return False  # in a container every run may have the same id
    if os.name == "nt":
        return True  # there, asking would end it
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True

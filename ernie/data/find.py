"""Search for files in folders and by patterns: links are followed, and whatever is not read is listed."""

from __future__ import annotations

import errno
import fnmatch
import glob
import os
import stat
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from ernie.errors import Remark, UserError

_MEMORY_DEVICES, _NULL = 1, 3  # the numbers of such devices on Linux, and of /dev/null
_SHOWN = 10  # of what was not read
# Folders in which programs keep what is no data, or none yet: unfinished parts, the logs and changes of tables.
LEFT_BY_PROGRAMS = frozenset(
    "_temporary _spark_metadata _delta_log _change_data _staging _impala_insert_staging _logs __MACOSX".split()
)
_ABSENT = "there is no such file or folder"


class Finder:
    """Finds the files below one given path, each once.

    Folders are searched in sorted order.  Links are followed, except to folders that they are in themselves, or that
    were searched already.  What was not read is kept, with the reason, for `note_unread`.
    """

    def __init__(self, given: str):
        self._given = given
        self._searched: dict[str, Path] = {}  # folders by their real paths
        self._unread: list[str] = []

    def note_unread(self) -> None:
        """Warn of what was not read."""
        if not self._unread:
            return
        more = len(self._unread) - _SHOWN
        shown = self._unread[:_SHOWN] + ([f"and {more:,} more"] if more > 0 else [])
        warnings.warn("\n".join([f"{self._given}: not read:", *(f"  {what}" for what in shown)]), Remark, stacklevel=3)

    def files(self, folder: Path) -> list[Path]:
        """Return the regular files below a folder, sorted by path; hidden files and folders are left out."""
        return sorted(path for path in self._below(folder) if not is_folder(path))

    def matches(self, pattern: str, is_wanted: Callable[[Path], bool]) -> list[Path]:
        """Return what matches a pattern with *, **, ? or [...], sorted; `is_wanted` says which names to list if broken.

        `**` stands for any number of folders.
        """
        first, *rest = Path(pattern).parts
        start = Path(first) if Path(first).is_absolute() else Path()
        found = self._matching(start, rest if Path(first).is_absolute() else [first, *rest])
        return sorted(path for path in dict.fromkeys(found) if self._is_there(path, is_wanted))

    def once(self, files: Iterable[Path]) -> list[Path]:
        """Return the files without those that are links to another of them, or to the same file as another."""
        files = sorted(files)
        kept: dict[object, Path] = {}
        for file in sorted(files, key=lambda file: (_is_linked(file), file)):
            first = kept.setdefault(identity(file), file)
            if first is not file:
                self.leave_out(file, f"is the same file as {first}, by a link, and is counted once")
        chosen = set(kept.values())
        return [file for file in files if file in chosen]

    def leave_out(self, path: Path, why: str) -> None:
        """Keep that a path was not read, and why, for `note_unread`."""
        self._unread.append(f"{path}: {why}")

    def _below(self, folder: Path) -> Iterator[Path]:
        """Yield all files and folders below a folder; linked folders come after those that are really there."""
        links: list[Path] = []
        yield from self._tree(folder, links)
        for link in links:  # grows meanwhile
            target, place = os.path.realpath(link), os.path.realpath(link.parent)
            if f"{place}{os.sep}".startswith(f"{target.rstrip(os.sep)}{os.sep}"):
                self.leave_out(link, "is a link to a folder that it is in itself")
            else:
                yield link
                yield from self._tree(link, links)

    def _tree(self, folder: Path, links: list[Path]) -> Iterator[Path]:
        real = os.path.realpath(folder)
        if real in self._searched:
            self.leave_out(folder, f"is a link to {self._searched[real]}, which is read already")
            return
        self._searched[real] = folder
        for path in self._entries(folder):
            if path.name in LEFT_BY_PROGRAMS and is_folder(path):
                self.leave_out(path, "holds what a program keeps beside its data")
            elif is_folder(path) and path.is_symlink():
                links.append(path)
            elif is_folder(path):
                yield path
                yield from self._tree(path, links)
            elif self._is_there(path, lambda path: True):
                yield path

    def _entries(self, folder: Path) -> list[Path]:
        """Return what a folder holds, sorted, but for hidden files and folders."""
        try:
            return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
        except OSError as error:
            self.leave_out(folder, f"the folder may not be read: {error.strerror}")
            return []

    def _is_there(self, path: Path, is_wanted: Callable[[Path], bool]) -> bool:
        """Whether a path is that of a folder or a regular file; it is listed otherwise."""
        try:
            mode = path.stat().st_mode
        except OSError as error:
            if is_wanted(path):
                self.leave_out(path, unreachable(path, error))
            return False
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            return True
        self.leave_out(path, "is no regular file; give its name to read it all the same")
        return False

    def _matching(self, start: Path, parts: Sequence[str]) -> Iterator[Path]:
        if not parts:
            yield start
            return
        part, rest = parts[0], parts[1:]
        if part == "**":
            folders = [start, *self._below(start)] if is_folder(start) else []
            self._searched.clear()
            for path in folders:
                if not rest or is_folder(path):
                    yield from self._matching(path, rest)
        elif glob.has_magic(part):
            for path in self._named(start, part) if is_folder(start) else ():
                if not rest or is_folder(path):
                    yield from self._matching(path, rest)
        elif os.path.lexists(start / part):
            yield from self._matching(start / part, rest)

    def _named(self, folder: Path, pattern: str) -> list[Path]:
        try:
            paths = sorted(folder.iterdir()) if pattern.startswith(".") else self._entries(folder)
        except OSError as error:
            raise UserError(f"{folder}: the folder may not be read: {error.strerror}") from None
        return [path for path in paths if fnmatch.fnmatchcase(path.name, pattern)]


def identity(file: Path) -> object:
    """Return the file that a name stands for, where its links lead to."""
    status = file.stat()
    return (status.st_dev, status.st_ino) if status.st_nlink > 1 and status.st_ino else os.path.realpath(file)


def absent(path: Path) -> str:
    """Return why there is no file or folder of a name: a link may lead nowhere."""
    try:
        path.stat()
    except (OSError, ValueError) as error:
        return unreachable(path, error)
    return _ABSENT


def is_endless(path: Path) -> bool:
    """Whether a path is that of a disk, or of a device that gives zeros or random numbers for ever."""
    status = path.stat()
    memory = stat.S_ISCHR(status.st_mode) and os.major(status.st_rdev) == _MEMORY_DEVICES
    return stat.S_ISBLK(status.st_mode) or (memory and os.minor(status.st_rdev) != _NULL)


def unreachable(path: Path, error: OSError | ValueError) -> str:
    """Return why a path leads nowhere."""
    if isinstance(error, ValueError):
        return f"is no name of a file: {error}"
    if error.errno == errno.ELOOP:
        return "is a link that leads back to itself"
    if error.errno not in (errno.ENOENT, errno.ENOTDIR):
        return f"may not be read: {error.strerror}"
    return f"is a link to {path.readlink()}, which is not there" if path.is_symlink() else _ABSENT


def is_folder(path: Path) -> bool:
    """Whether a path is that of a folder, or of a link to one; not where it cannot be found out."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except OSError:
        return False


def _is_linked(file: Path) -> bool:
    return os.path.realpath(file) != os.path.abspath(file)  # noqa: PTH100 - keeps links

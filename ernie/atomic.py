"""Atomic writes of folders and files: filled under a temporary name in the same folder, then renamed."""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from ernie.errors import UserError

PARTIAL = ".partial"  # suffix of the name of a file or folder that is being written
_FULL, _LIMITED = "the disk is full", "the limit on the size of files is reached"
_WAY_OUT = {
    _FULL: "Free some space and run the same command again",
    _LIMITED: "Raise it (`ulimit -f`) and run the same command again",
}


def make_folder(folder: str | Path) -> Path:
    """Create the folder if necessary and return its path.  Raises UserError if it cannot be created."""
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        name = final_name(str(folder))
        raise UserError(f"{name}: there is a file of that name, or of its parent's; give another folder") from None
    except OSError as error:
        if no_room(error):
            raise
        name = final_name(str(folder))
        raise UserError(f"{name}: cannot be created ({error.strerror}); give another folder") from None
    return folder


def partial_folder(place: Path, is_wanted: Callable[[Path], bool] = lambda folder: False) -> Path:
    """Return the temporary folder to fill for `place`, not yet created: `NAME.partial-PID`.

    Cleans up what killed processes left next to `place`: partial folders are removed, but for one that `is_wanted`,
    which is taken over as it is.  A folder that was about to be replaced is restored if its successor never arrived.
    If `place` is a symbolic link, its target is used instead.  Raises UserError for the current folder.
    """
    place = _resolved(place)
    for leftover in _left_by_dead_processes(place, r"old-(\d+)"):
        if place.exists():
            _remove(leftover)
        else:
            leftover.rename(place)
    own, wanted = _temporary(place, "partial"), None
    for leftover in _left_by_dead_processes(place, r"partial-(\d+)"):
        if wanted is None and is_wanted(leftover):
            wanted = leftover
        else:
            _remove(leftover)
    if wanted is not None and wanted != own:
        wanted.rename(own)
    return own


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
    """Raise UserError if there is no room while `place` is written; `meaning` states the consequence."""
    try:
        yield
    except Exception as error:
        if reason := no_room(error):
            raise UserError(f"{place}: {reason}; {meaning}. {_WAY_OUT[reason]}.") from None
        raise


def final_name(path: str) -> str:
    """Return a path as its readers will know it: without the suffixes of what is being written, for messages."""
    return re.sub(rf"(\.\d+-[0-9a-f]+)?{re.escape(PARTIAL)}(-\d+)?(?=[/\\]|$)", "", path)


def no_room(error: BaseException) -> str:
    """Return why a file could not be written to its end, a full disk or a limit on files; "" for any other error."""
    number = error.errno if isinstance(error, OSError) else None
    # safetensors raises an exception of its own for I/O errors, with the operating system's message in it.
    if number in (errno.ENOSPC, errno.EDQUOT) or "No space left on device" in str(error):
        return _FULL
    return _LIMITED if number == errno.EFBIG or "File too large" in str(error) else ""


def without_room(error: BaseException) -> str:
    """Return a sentence on an error for want of room, with the way out; "" for any other error."""
    reason = no_room(error)
    return f"{reason}. {_WAY_OUT[reason]}" if reason else ""


def check_room(folder: Path, needed: int, largest: int, what: str) -> None:
    """Raise UserError unless `needed` bytes can be written to a folder, in files of up to `largest` bytes.

    To be called before long work, so that its result is not lost.  The folder need not exist.
    """
    if 0 <= (limit := _file_limit()) < largest:
        raise UserError(
            f"{folder}: {what} takes files of {_megabytes(largest)}, and the limit on the size of files is "
            f"{_megabytes(limit)}. {_WAY_OUT[_LIMITED]}."
        )
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    if (free := shutil.disk_usage(there).free) < needed:
        raise UserError(
            f"{folder}: {what} takes {_megabytes(needed)}, and the disk has {_megabytes(free)} left. {_WAY_OUT[_FULL]}."
        )


def check_written(folder: Path) -> None:
    """Raise OSError if files in a folder were cut for want of room, for writers that do not say so, as Paddle's."""
    limit = _file_limit()
    if any(0 <= limit <= path.stat().st_size for path in folder.iterdir()):
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), str(folder))
    if shutil.disk_usage(folder).free == 0:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def _file_limit() -> int:
    """Return the limit on the size of files in bytes (`ulimit -f`); negative without one."""
    try:
        import resource
    except ImportError:  # on Windows
        return -1
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return -1 if limit == resource.RLIM_INFINITY else limit


def _megabytes(size: int) -> str:
    return f"{size / 1e6:,.3g} MB" if size < 1e6 else f"{size / 1e6:,.0f} MB"


def put_text(path: Path, text: str) -> None:
    """Write a text file atomically, as UTF-8; see `replacing`."""
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield the temporary path of a file to write, which then replaces `path`.

    After an exception, or a kill at any moment, `path` has either the old or the new content.  Links are not followed:
    one at `path`, perhaps of a stranger, is replaced.
    """
    partial = temporary_file(path)
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def temporary_file(path: Path) -> Path:
    """Create an empty file beside `path` that is to be renamed to it, and return its path.

    Its name cannot be guessed, so that no link can stand there.  Those that killed processes left are removed.
    """
    own = f"{path.name}.{os.getpid()}-"
    for leftover in _left_by_dead_processes(path, r"(\d+)-[0-9a-f]+\.partial"):
        if not leftover.name.startswith(own):  # perhaps another thread's
            leftover.unlink(missing_ok=True)
    partial = path.with_name(f"{own}{secrets.token_hex(8)}{PARTIAL}")
    os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
    return partial


def inner_folder(outer: Path, name: str) -> Path:
    """Create the folder `name` in `outer` if necessary and return it.

    Raises UserError for a link that leads out of `outer`: in a stranger's folder it would lead writers anywhere.
    """
    folder = outer / name
    check_within(outer, folder)
    return make_folder(folder)


def check_within(outer: Path, path: Path) -> None:
    """Raise UserError if `path`, in the folder `outer`, is a link that leads out of it."""
    if path.is_symlink() and not path.resolve().is_relative_to(outer.resolve()):
        raise UserError(f"{path}: is a link that leads out of {outer}, to {path.resolve()}; nothing is written there")


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


def _remove(folder: Path) -> None:
    if folder.is_symlink():  # whose target is not ours
        folder.unlink()
    else:
        shutil.rmtree(folder)


def _left_by_dead_processes(place: Path, what: str) -> list[Path]:
    """Return what stands beside `place` under its name, a dot and `what`, a pattern with the group of a process id."""
    pattern = re.compile(rf"{re.escape(place.name)}\.{what}")
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

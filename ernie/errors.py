"""Errors that a user can fix: one sentence that says what was found, where, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar

_COMPARED, _LISTED = 10_000, 100  # known names, in `nearest`: a file may have 100,000 columns


class UserError(ValueError):
    """An error that the user can fix.  The command line prints it without a traceback and exits with its `status`.

    Its message names the place; programs find the place in fields, each None if unknown: the `file` and its `line`,
    counted from 1, the `key` of a setting or a column, the `row` of a table and the `stream` of a batch, from 0.
    """

    status: ClassVar[int] = 2

    def __init__(
        self,
        *message: object,
        file: str | None = None,
        line: int | None = None,
        key: str | None = None,
        row: int | None = None,
        stream: int | None = None,
    ):
        super().__init__(*message)
        self.file, self.line, self.key, self.row, self.stream = file, line, key, row, stream


class TrainingFailed(UserError):
    """Training that failed, for instance by diverging, although all inputs were valid."""

    status: ClassVar[int] = 1


class PortTaken(UserError):
    """The port at which processes were to find one another was taken between its choice and its use."""

    status: ClassVar[int] = 98  # EADDRINUSE on Linux; other than the statuses of a command


class DamagedFile(UserError):
    """A file that breaks off or is damaged; what is before that may have been read."""


class NotFinite(UserError):
    """A model's outputs are NaN or infinite."""


class Remark(UserWarning):
    """A warning about something unusual that needs no fix.  The command line prints it as a note."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: the closest known one in any case, or all of them if none is close.

    Of very many names only the first are compared and listed.  The hint starts with a space, so that it can follow a
    full stop; it is empty if `known` is.
    """
    names = sorted(set(known))
    spelled = {other.lower(): other for other in names[:_COMPARED]}
    close = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=0.6)
    if close:
        return f" Did you mean '{spelled[close[0]]}'?"
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return f" Known: {', '.join(names[:_LISTED])}{more}." if names else ""


def check_exists(folder: Path) -> None:
    """Raise UserError if a folder does not exist, before reporting what is missing in it."""
    if not folder.exists():
        raise UserError(f"{folder}: there is no such folder")


def check_iterable(given: Any, what: str) -> None:
    """Raise UserError for what is not iterable, or is a table, which iterates over column names instead of rows."""
    if isinstance(given, Mapping) or hasattr(given, "columns"):  # a data frame, a table
        columns = ", ".join(map(repr, list(getattr(given, "columns", given))[:5]))
        table = f"a table with the columns {columns:.60}; give one of them, or its rows"
        raise UserError(f"expected several {what}, such as a list, found {table}")
    if not isinstance(given, Iterable) or isinstance(given, bytes) or getattr(given, "ndim", 1) == 0:
        raise UserError(f"expected several {what}, such as a list, found {given!r:.60}")


def check_count(name: str, given: Any, least: int) -> None:
    """Raise UserError unless an argument is an integer of at least `least`."""
    if not isinstance(given, Integral) or isinstance(given, bool):
        raise UserError(f"{name}: expected a whole number, found {given!r:.60}")
    if given < least:
        raise UserError(f"{name}: expected at least {least}, found {given}")


@contextmanager
def about(place: object) -> Iterator[None]:
    """Prefix the message of any UserError raised inside with `place` (a file, a key).

    A path, or a place with a `file` and a `line`, also sets these fields of the error unless its file is known.
    """
    try:
        yield
    except UserError as error:
        # Some callers treat these kinds otherwise.
        kind = type(error) if isinstance(error, (TrainingFailed, NotFinite)) else UserError
        fields = _fields(error)
        raise kind(f"{place}: {error}", **(fields if "file" in fields else _fields_of(place) | fields)) from None


def _fields(error: UserError) -> dict[str, Any]:
    """Return the fields of an error that are set."""
    found = {name: getattr(error, name) for name in ("file", "line", "key", "row", "stream")}
    return {name: value for name, value in found.items() if value is not None}


def _fields_of(place: Any) -> dict[str, Any]:
    """Return the fields that a place sets; an item from no file has a row only."""
    if isinstance(place, Path):
        return {"file": str(place)}
    file, line = getattr(place, "file", None), getattr(place, "line", None)
    return {"file": str(file), "line": line} if file else {} if line is None else {"row": line}

"""Errors that a user can mend: one sentence that says what was found, where, and the way out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from typing import Any, ClassVar


class UserError(ValueError):
    """Something the user can mend.  The command line prints it without a traceback and exits with its `status`."""

    status: ClassVar[int] = 2


class BrokeDown(UserError):
    """Training that came to nothing, from what was right as far as could be known before."""

    status: ClassVar[int] = 1


class NotFinite(UserError):
    """A model's outputs are no numbers, or infinite."""


class Remark(UserWarning):
    """Something odd that the user should know of and need not mend.  The command line prints it as a note."""


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: the nearest known one, or all of them when none is near.

    Starts with a space, so that it can follow a full stop; empty when nothing is known.
    """
    names = sorted(set(known))
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if close:
        return f" Did you mean '{close[0]}'?"
    return f" Known: {', '.join(names)}." if names else ""


def check_there(folder: Path) -> None:
    """Raise UserError where there is nothing of that name, before it is said what a folder lacks."""
    if not folder.exists():
        raise UserError(f"{folder}: there is no such folder")


def check_several(given: Any, what: str) -> None:
    """Raise UserError for what cannot be gone through one by one, or gives its columns' names instead of its rows."""
    if isinstance(given, Mapping) or hasattr(given, "columns"):  # a data frame, a table
        columns = ", ".join(map(repr, list(getattr(given, "columns", given))[:5]))
        said = f"found a table with the columns {columns:.60}; give one of them, or its rows"
        raise UserError(f"expected several {what}, such as a list, {said}")
    if not isinstance(given, Iterable) or isinstance(given, bytes) or getattr(given, "ndim", 1) == 0:
        raise UserError(f"expected several {what}, such as a list, found {given!r:.60}")


def check_count(name: str, given: Any, least: int) -> None:
    """Raise UserError unless an argument is a whole number, and not less than `least`."""
    if not isinstance(given, Integral):
        raise UserError(f"{name}: expected a whole number, found {given!r:.60}")
    if given < least:
        raise UserError(f"{name}: expected at least {least}, found {given}")


@contextmanager
def about(place: object) -> Iterator[None]:
    """Put `place` (a file, a key) before the message of any UserError raised inside."""
    try:
        yield
    except UserError as error:
        kind = BrokeDown if isinstance(error, BrokeDown) else UserError
        raise kind(f"{place}: {error}") from None

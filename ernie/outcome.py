"""Outcomes: what one of many computations returned, or the error that it alone ended with, and notes about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from ernie.errors import UserError

T = TypeVar("T")


@dataclass(frozen=True)
class Note:
    """Something unusual that needs no fix, and where it was found; its string is the sentence that commands print.

    The fields are those of a UserError: a `file` and its `line`, counted from 1, the `key` of a setting or a column,
    the `row` of a table and the `stream` of a batch, from 0.  The sentence names all but the stream.  Notes that say
    the same about different texts have the same `topic`: commands print the first of them only.
    """

    text: str
    file: str | None = None
    line: int | None = None
    key: str | None = None
    row: int | None = None
    stream: int | None = None
    topic: str | None = None

    def __str__(self) -> str:
        place = None if self.file is None else self.file if self.line is None else f"{self.file}:{self.line}"
        row = None if self.row is None else f"row {self.row}"
        return ": ".join(part for part in (place, row, self.key, self.text) if part is not None)


@dataclass(frozen=True)
class Outcome(Generic[T]):
    """The `value` of a computation, unless an `error` ended it, and `notes` about it.

    A computation of several parts, such as one for each stream or row, returns one for each: a bad part harms itself
    alone.
    """

    value: T | None = None
    error: UserError | None = None
    notes: tuple[Note, ...] = ()

    def get(self) -> T:
        """Return the value.  Raises the error if there is one."""
        if self.error is not None:
            raise self.error
        return self.value  # type: ignore[return-value]  # None only if T includes it

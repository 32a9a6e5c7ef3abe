"""Calls of a kind's own methods, whose mistakes are reported with the kind, the method and, if known, the row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from ernie.errors import UserError


class Named(Protocol):
    """A fine-tuning task, as far as messages name it."""

    @property
    def variant_name(self) -> str | None:
        """The name of its kind."""


def named(task: Named, method: str) -> str:
    """Return the beginning of a message about a method of a kind."""
    return f"kind '{task.variant_name}': its `{method}`"


@contextmanager
def calling(task: Named, method: str, place: object = "") -> Iterator[None]:
    """Name the kind, the method and the place (of a row) in exceptions raised inside, except in messages to users."""
    try:
        yield
    except (UserError, OSError):
        raise
    except Exception as error:
        raise RuntimeError(f"{named(task, method)} failed{f' at {place}' if place else ''}: {error!r}") from error

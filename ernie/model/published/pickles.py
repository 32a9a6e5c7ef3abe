"""Pickles of strangers, read without running their code.

A pickle is a program.  This reader knows a handful of functions, those that make arrays, and refuses any other.
"""

from __future__ import annotations

import pickle
import pickletools
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from ernie.errors import UserError


class SafeUnpickler(pickle.Unpickler):
    """An unpickler for which only the things in `known`, by (module, name), exist.

    `path` is the file that messages name.  Raises UserError when the pickle asks for more memory than it can use.
    """

    def __init__(self, stream: IO[bytes], path: Path, known: Mapping[tuple[str, str], Any]):
        _check_places(stream, path)
        super().__init__(stream, encoding="latin1")  # Python 2's pickles hold the bytes of arrays as such text
        self._path, self._known = path, known

    def find_class(self, module: str, name: str) -> Any:
        """What the pickle calls `module.name`.  Raises UserError when it is none of the known things."""
        if (module, name) not in self._known:
            raise UserError(
                f"{self._path}: asks for {module}.{name}, which is no part of a file of weights; it was not run. "
                "Take the file from its publisher again, or a safetensors version of it"
            )
        return self._known[module, name]


def _check_places(stream: IO[bytes], path: Path) -> None:
    """Refuse a place in the table of known objects that lies beyond their number, without moving in the stream.

    Objects are numbered in turn, an operation each.  Python's reader makes the table as long as the largest number,
    so that one damaged byte costs up to 64 GB.
    """
    start = stream.tell()
    try:
        for operation, place, at in pickletools.genops(stream):
            stores = operation.name in ("PUT", "LONG_BINPUT")
            if stores and isinstance(place, int) and at is not None and place > at - start:
                raise UserError(f"{path}: is damaged, or no file of weights (its object {place} lies past its end)")
    except UserError:
        raise
    except Exception:  # damaged in another way, of which `unpickle` tells
        return
    finally:
        stream.seek(start)


def unpickle(unpickler: SafeUnpickler, path: Path) -> Any:
    """The next object of a stream.  Raises UserError when the pickle is damaged."""
    try:
        return unpickler.load()
    except UserError:
        raise
    # A damaged pickle fails in as many ways as there are operations in it.
    except Exception as error:
        raise UserError(f"{path}: is damaged, or no file of weights ({type(error).__name__}: {error})") from None

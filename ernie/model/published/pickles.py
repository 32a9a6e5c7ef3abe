"""Reading untrusted pickles without executing their code.

A pickle is a program.  This reader allows only a few functions, which record what arrays consist of, and refuses all
others.  NumPy's own are not among them: they trust the state that a pickle gives them, even as memory addresses.
"""

from __future__ import annotations

import pickle
import pickletools
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType
from typing import IO, Any

from ernie.errors import UserError


class _Callable:
    """A function without attributes that a pickle could replace."""

    __slots__ = ("__call",)

    def __init__(self, function: Callable[..., Any]):
        object.__setattr__(self, "_Callable__call", function)

    def __call__(self, *arguments: Any) -> Any:
        return self.__call(*arguments)  # type: ignore[attr-defined]

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(name)


class SafeUnpickler(pickle.Unpickler):
    """An unpickler that resolves only the globals in `known`, by (module, name).

    `path` is the file named in error messages.  Raises UserError for memo indices that would allocate excessive memory.
    """

    def __init__(self, stream: IO[bytes], path: Path, known: Mapping[tuple[str, str], Any]):
        _check_memo(stream, path)
        super().__init__(stream, encoding="latin1")  # Python 2's pickles store the bytes of arrays as latin-1 strings
        self._path, self._known = path, known

    def find_class(self, module: str, name: str) -> Any:
        """Resolve `module.name`.  Raises UserError unless it is one of the known globals."""
        if (module, name) not in self._known:
            raise UserError(
                f"{self._path}: asks for {module}.{name}, which is no part of a file of weights; it was not run. "
                "Take the file from its publisher again, or a safetensors version of it"
            )
        found = self._known[module, name]
        return _Callable(found) if isinstance(found, FunctionType) else found


def _check_memo(stream: IO[bytes], path: Path) -> None:
    """Reject memo indices larger than their offset in the pickle; leaves the stream where it was.

    Memo entries are numbered consecutively, one operation each.  Python's unpickler makes the memo as long as the
    largest index, so that a single corrupt byte could allocate up to 64 GB.
    """
    start = stream.tell()
    try:
        for operation, index, offset in pickletools.genops(stream):
            stores = operation.name in ("PUT", "LONG_BINPUT")
            if stores and isinstance(index, int) and offset is not None and index > offset - start:
                raise UserError(f"{path}: is damaged, or no file of weights (its object {index} lies past its end)")
    except UserError:
        raise
    except Exception:  # other damage is reported by `unpickle`
        return
    finally:
        stream.seek(start)


def unpickle(unpickler: SafeUnpickler, path: Path) -> Any:
    """Load the next object of a stream.  Raises UserError when the pickle is damaged."""
    try:
        return unpickler.load()
    except UserError:
        raise
    # A damaged pickle can raise any exception.
    except Exception as error:
        raise UserError(f"{path}: is damaged, or no file of weights ({type(error).__name__}: {error})") from None

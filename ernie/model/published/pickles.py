"""Reading untrusted pickles without executing their code.

A pickle is a program.  This reader allows only a few functions, which record what arrays consist of, and refuses all
others.  NumPy's own are not among them: they trust the state that a pickle gives them, even as memory addresses.
"""

from __future__ import annotations

import pickle
import pickletools
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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


class _Dictionary(OrderedDict[Any, Any]):
    """An OrderedDict without attributes: each could be given copies of a large dictionary."""

    def __setstate__(self, state: Any) -> None:
        """Ignore the state."""


def ordered_dict(items: Any = ()) -> OrderedDict[Any, Any]:
    """Return an OrderedDict with names as keys; Python 2's pickles give it a list of all items.

    The list is emptied, so that a pickle cannot have it copied many times.
    """
    pairs = [(name, value) for name, value in items if isinstance(name, str)]
    if isinstance(items, list):
        items.clear()
    return _Dictionary(pairs)


class SafeUnpickler(pickle.Unpickler):
    """An unpickler that resolves only the globals in `known`, by (module, name).

    `path` is the file named in error messages.  Raises UserError for one that would make far more than it holds.
    """

    def __init__(self, stream: IO[bytes], path: Path, known: Mapping[tuple[str, str], Any]):
        _check_program(stream, path)
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


_GROWTH, _SLACK = 8, 1 << 20  # a pickle may make so much: this multiple of its length, plus these bytes


@dataclass
class _Program:
    """The sizes of what a pickle makes, computed from its operations without making it.

    An object counts as often as it is contained in others: a few bytes can name a large one many times.  `stack` holds
    the size of each object and whether it can be a key of a dictionary.  Only text and numbers can, since Python hashes
    a key with all that it contains, at each use.  A `None` in place of both is a mark.
    """

    path: Path
    stack: list[tuple[int, bool] | None] = field(default_factory=list)
    memo: dict[int, tuple[int, bool]] = field(default_factory=dict)
    made: int = 0  # bytes made by functions, which copy what they are given

    def run(self, name: str, argument: Any, length: int) -> None:
        """Perform one operation of an argument that is `length` bytes long in the file."""
        if name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self.memo[len(self.memo) if name == "MEMOIZE" else argument] = self.top()
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[argument])
        elif name in ("POP", "POP_MARK"):
            self.pop(1) if name == "POP" else self.pop_mark()
        elif name == "DUP":
            self.stack.append(self.top())
        elif name == "MARK":
            self.stack.append(None)
        elif name in ("SETITEM", "SETITEMS", "APPEND", "APPENDS", "ADDITEMS"):
            items = self.pop_mark() if name.endswith("S") else self.pop(2 if name == "SETITEM" else 1)
            self.check_keys(items[::2] if name.startswith("SETITEM") else items if name == "ADDITEMS" else [])
            self.put(self.pop(1) + items)
        elif name in ("DICT", "LIST", "TUPLE", "FROZENSET", "INST", "OBJ"):
            items = self.pop_mark()
            self.check_keys(items[::2] if name == "DICT" else items if name == "FROZENSET" else [])
            self.put(items)
        elif name in _TAKEN:
            self.put(self.pop(_TAKEN[name]), copies=name in ("REDUCE", "NEWOBJ", "NEWOBJ_EX"))
        elif name not in ("PROTO", "FRAME", "STOP"):
            self.stack.append((length + 8, name not in ("EMPTY_LIST", "EMPTY_DICT", "EMPTY_SET")))

    def top(self) -> tuple[int, bool]:
        [item] = self.pop(1)
        self.stack.append(item)
        return item

    def pop(self, count: int) -> list[tuple[int, bool]]:
        items = [self.stack.pop() for _ in range(count)][::-1]
        if None in items:
            raise ValueError("a mark where an object should be")
        return [item for item in items if item is not None]

    def pop_mark(self) -> list[tuple[int, bool]]:
        items = []
        while (item := self.stack.pop()) is not None:
            items.append(item)
        return items[::-1]

    def put(self, parts: list[tuple[int, bool]], copies: bool = False) -> None:
        size = 8 + sum(part for part, _ in parts)
        self.made += size if copies else 0
        self.stack.append((size, False))

    def check_keys(self, keys: list[tuple[int, bool]]) -> None:
        if not all(can_be_key for _, can_be_key in keys):
            raise UserError(f"{self.path}: a dictionary in it has a key that is no text; it is no file of weights")

    def check_size(self, length: int) -> None:
        """Raise UserError if the objects made so far, or one of them written out, are too large for the file."""
        last = self.stack[-1] if self.stack else None
        largest = max(self.made, last[0] if last is not None else 0)
        if largest > _GROWTH * length + _SLACK:
            raise UserError(
                f"{self.path}: {length:,} bytes of it would become more than {_GROWTH} times as much; it is no file of "
                "weights"
            )


_TAKEN = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3, "REDUCE": 2, "BUILD": 2, "NEWOBJ": 2, "NEWOBJ_EX": 3}
_TAKEN |= {"STACK_GLOBAL": 2, "BINPERSID": 1}


def _check_program(stream: IO[bytes], path: Path) -> None:
    """Refuse a pickle that would make far more than it holds; leaves the stream where it was.

    Memo entries are numbered consecutively, one operation each.  Python's unpickler makes the memo as long as the
    largest index, so that a single corrupt byte could allocate up to 64 GB.
    """
    start = stream.tell()
    end = stream.seek(0, 2)
    stream.seek(start)
    program = _Program(path)
    try:
        for operation, argument, offset in pickletools.genops(stream):
            stores = operation.name in ("PUT", "LONG_BINPUT")
            if stores and isinstance(argument, int) and offset is not None and argument > offset - start:
                raise UserError(f"{path}: is damaged, or no file of weights (its object {argument} lies past its end)")
            length = len(argument) if isinstance(argument, str | bytes | bytearray) else 8
            program.run(operation.name, argument, length)
            program.check_size(end - start)
    except UserError:
        raise
    except Exception as error:  # damage; what this check cannot follow is not run
        raise UserError(f"{path}: is damaged, or no file of weights ({type(error).__name__}: {error})") from None
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

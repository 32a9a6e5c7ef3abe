"""Reader for Paddle's weight files (.pdparams) that does not execute pickled code."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ernie.errors import UserError
from ernie.json_file import check_not_lfs_pointer
from ernie.model.published.arrays import bfloat16_to_float32, shaped
from ernie.model.published.pickles import SafeUnpickler, ordered_dict, unpickle

_NUMBERS = frozenset({"f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"})


class _Type:
    """A pickled numpy.dtype: its code and byte order."""

    def __init__(self, code: Any):
        self.code, self.order = code, "<"

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1]


class _Array:
    """A pickled numpy.ndarray: its shape, type, order (Fortran's or not) and bytes."""

    shape: Any = ()
    kind: Any = None
    fortran: Any = False
    content: Any = b""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, self.shape, self.kind, self.fortran, self.content = state


def _type(code: Any, *_: Any) -> _Type:
    return _Type(code)


def _latin1(text: Any, codec: Any) -> bytes:
    """Return bytes, as pickled by Python 2's protocol; other codecs can take a time quadratic in the text's length."""
    if not isinstance(text, str) or codec not in ("latin1", "latin-1"):
        raise ValueError(f"text in the codec {codec!r:.20}")
    return text.encode("latin1")


def _no_bytes(*given: Any) -> bytes:
    if given:  # a number, of bytes to allocate
        raise ValueError("bytes of something else than nothing")
    return b""


def _tuple(items: Any = ()) -> tuple[Any, ...]:
    """Return the tuple that Paddle gives; of a list, a pickle could ask for many copies."""
    if not isinstance(items, tuple):
        raise ValueError("a tuple of something else than a tuple")
    return items


def _array(*_: Any) -> _Array:
    return _Array()


def _from_buffer(content: Any, kind: Any, shape: Any, order: Any) -> _Array:
    """Return an array as protocol 5 pickles it; its content is checked where it is used, and not copied here."""
    array = _Array()
    array.shape, array.kind, array.fortran, array.content = shape, kind, order == "F", content
    return array


_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _array,
    ("numpy", "dtype"): _type,
    ("numpy.core.multiarray", "_reconstruct"): _array,  # the module depends on NumPy's version
    ("numpy._core.multiarray", "_reconstruct"): _array,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("collections", "OrderedDict"): ordered_dict,
    ("_codecs", "encode"): _latin1,
    **{(module, "tuple"): _tuple for module in ("builtins", "__builtin__")},
    **{(module, "bytes"): _no_bytes for module in ("builtins", "__builtin__")},
}


def read_pdparams(path: Path) -> dict[str, np.ndarray]:
    """Read the tensors of a `.pdparams` file by name.

    Raises UserError when the file is damaged or holds anything but weights.
    """
    check_not_lfs_pointer(path)
    with path.open("rb") as stream:
        content = unpickle(SafeUnpickler(stream, path, _KNOWN), path)
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected weights by name, found {type(content).__name__}")
    # Paddle 2.1 and later store a tensor as (variable name, array), or sometimes as the array alone.
    items = {name: item[1] if isinstance(item, tuple) and len(item) == 2 else item for name, item in content.items()}
    found = {name: item for name, item in items.items() if isinstance(item, _Array) and _is_numeric(item)}
    arrays = {name: _values(item, name, path) for name, item in found.items()}
    # Paddle stores bfloat16 as uint16, which no weight is otherwise.
    return {name: bfloat16_to_float32(item) if item.dtype == np.uint16 else item for name, item in arrays.items()}


def _is_numeric(array: _Array) -> bool:
    return isinstance(array.kind, _Type) and isinstance(array.kind.code, str) and array.kind.code in _NUMBERS


def _values(array: _Array, name: Any, path: Path) -> np.ndarray:
    """Return the array that was pickled.  Raises UserError unless its bytes are as many as its shape and type need."""
    content = array.content
    if isinstance(content, str):  # written by Python 2
        with suppress(UnicodeEncodeError):
            content = content.encode("latin1")
    shape, order = array.shape, array.kind.order
    sizes = shape if isinstance(shape, tuple) and all(isinstance(size, int) and size >= 0 for size in shape) else None
    if sizes is None or not isinstance(content, bytes | bytearray) or order not in ("<", ">", "|", "="):
        raise UserError(f"{path}: is damaged: what it holds of '{name}' is no array")
    kind = np.dtype(f"{order}{array.kind.code}")
    if len(content) != math.prod(sizes) * kind.itemsize:
        raise UserError(f"{path}: is damaged: '{name}' of shape {list(sizes)} has {len(content):,} bytes")
    return shaped(np.frombuffer(content, kind), sizes, path, "F" if array.fortran else "C")

"""Reader for Paddle 1.x variables: a folder with one binary file per variable.

A file holds a version (4 bytes), the number of LoD levels (8 bytes), each level's size and content, and then the
tensor.  The tensor has a version (4 bytes), the length of its description (4 bytes), the description and the values.
The description is a protobuf message: field 1 is the type, field 2 the sizes.  All numbers are little-endian.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ernie.errors import UserError
from ernie.json_file import check_not_lfs_pointer
from ernie.protobuf import fields, varint

_TYPES = {0: "?", 1: "<i2", 2: "<i4", 3: "<i8", 4: "<f2", 5: "<f4", 6: "<f8", 20: "u1", 21: "i1"}


def read_fluid(folder: Path) -> dict[str, np.ndarray]:
    """Read the variables of a folder by name.  Raises UserError for a file that is not a variable."""
    if not folder.is_dir():
        raise UserError(f"{folder}: expected a folder with one file for each variable")
    return {path.name: _read_variable(path) for path in sorted(folder.iterdir()) if path.is_file()}


def _read_variable(path: Path) -> np.ndarray:
    check_not_lfs_pointer(path)
    data = path.read_bytes()
    try:
        return _parse(data)
    except (ValueError, IndexError, KeyError, OverflowError) as error:
        raise UserError(
            f"{path}: is no variable of Paddle 1.x, or it is cut off ({type(error).__name__}: {error})"
        ) from None


def _parse(data: bytes) -> np.ndarray:
    version, position = int.from_bytes(data[:4], "little"), 12
    if version != 0:
        raise ValueError(f"version {version}")
    for _ in range(int.from_bytes(data[4:12], "little")):
        position += 8 + int.from_bytes(data[position : position + 8], "little")
        if position > len(data):  # a corrupt number of levels can be arbitrarily large
            break
    if position + 8 > len(data):
        raise ValueError("no tensor in it")
    start = position + 8 + int.from_bytes(data[position + 4 : position + 8], "little")
    kind, sizes = 5, list[int]()
    for number, value in fields(data[position + 8 : start]):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number == 2:
            sizes += [value] if isinstance(value, int) else _packed_varints(value)
    return np.frombuffer(data, _TYPES[kind], offset=start).reshape(sizes)


def _packed_varints(data: bytes) -> list[int]:
    values, position = [], 0
    while position < len(data):
        value, position = varint(data, position)
        values.append(value)
    return values

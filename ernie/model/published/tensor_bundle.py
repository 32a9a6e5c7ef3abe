"""Reader for TensorFlow checkpoints (the "tensor bundle") that does not need TensorFlow.

`NAME.index` is a table in LevelDB's format.  It has blocks of sorted keys with shared prefixes, a block that indexes
them, and a footer of 48 bytes with the position of the index block.  The values are protobuf messages that locate a
tensor's bytes in the file `NAME.data-*`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ernie.errors import UserError
from ernie.json_file import check_not_lfs_pointer
from ernie.model.published.arrays import bfloat16_to_float32, check_growth, shaped
from ernie.protobuf import fields, varint

_MAGIC = 0xDB4775248B80FB57
_FOOTER = 48
_MAX_KEY = 1024  # bytes of a tensor's name: names share prefixes, so that a few bytes could make many long ones
_TYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 14: "<u2", 19: "<f2"}
_BFLOAT16 = 14
_SHARDS, _ENDIANNESS = 1, 2  # fields of the header


@dataclass
class _Entry:
    """One tensor: its type, shape, and the bytes [offset, offset + size) of a shard."""

    kind: int = 0
    shape: list[int] = field(default_factory=list)
    shard: int = 0
    offset: int = 0
    size: int = 0


def read_tensor_bundle(index: Path) -> dict[str, np.ndarray]:
    """Read the tensors of a checkpoint by name, given its `.index` file, with bfloat16 converted to float32.

    Non-numeric tensors are left out.  Raises UserError when a file is damaged or missing.
    """
    check_not_lfs_pointer(index)
    try:
        entries = {key.decode(): value for key, value in _table(index.read_bytes())}
        header = {number: value for number, value in fields(entries.pop("")) if isinstance(value, int)}
        tensors = {name: _entry(value) for name, value in entries.items()}
    except (ValueError, IndexError, KeyError) as error:
        raise UserError(f"{index}: is no index of a TensorFlow checkpoint, or it is damaged ({error})") from None
    if header.get(_ENDIANNESS, 0) != 0:
        raise UserError(f"{index}: was written on a big-endian machine; only little-endian files can be read")
    shards, files = header.get(_SHARDS, 0), list[Path]()
    for shard in range(shards):
        files.append(index.with_name(f"{index.stem}.data-{shard:05d}-of-{shards:05d}"))
        if not files[-1].is_file():
            raise UserError(f"{index}: its data file {files[-1].name} is missing; it belongs beside the index")
        check_not_lfs_pointer(files[-1])
    for name, entry in tensors.items():
        if entry.shard >= shards:
            raise UserError(f"{index}: is damaged: '{name}' is in data file {entry.shard} of {shards}")
    numeric = {name: entry for name, entry in tensors.items() if entry.kind in _TYPES}
    check_growth(sum(entry.size for entry in numeric.values()), sum(file.stat().st_size for file in files), index)
    return {name: _values(entry, files[entry.shard]) for name, entry in numeric.items()}


def _values(entry: _Entry, file: Path) -> np.ndarray:
    kind = np.dtype(_TYPES[entry.kind])
    count, end = math.prod(entry.shape), entry.offset + entry.size
    if end > file.stat().st_size or entry.size != count * kind.itemsize:
        raise UserError(f"{file}: is cut off: a tensor of shape {entry.shape} should stand at byte {entry.offset}")
    values: np.ndarray = np.fromfile(file, kind, count, offset=entry.offset)
    if entry.kind == _BFLOAT16:
        values = bfloat16_to_float32(values)
    return shaped(values, entry.shape, file)


def _entry(message: bytes) -> _Entry:
    entry = _Entry()
    names = {1: "kind", 3: "shard", 4: "offset", 5: "size"}
    for number, value in fields(message):
        if number in names and isinstance(value, int):
            setattr(entry, names[number], value)
        elif number == 2 and isinstance(value, bytes):
            sizes = [dict(fields(size)) for key, size in fields(value) if key == 2 and isinstance(size, bytes)]
            entry.shape = [size for dimension in sizes if isinstance(size := dimension.get(1, 0), int)]
    return entry


def _table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values of a table, in order."""
    footer = data[-_FOOTER:]
    if len(data) < _FOOTER or int.from_bytes(footer[-8:], "little") != _MAGIC:
        raise ValueError("its last bytes are not those of a table")
    _, position = _block_handle(footer, 0)  # skip the metaindex block, which is empty
    (offset, size), _ = _block_handle(footer, position)
    read = 0
    for _, value in _block(data, offset, size):
        (start, length), _ = _block_handle(value, 0)
        read += length
        if read > len(data):  # the same block, named many times
            raise ValueError("its blocks overlap")
        yield from _block(data, start, length)


def _block_handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    offset, position = varint(data, position)
    size, position = varint(data, position)
    return (offset, size), position


def _block(data: bytes, offset: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    block = data[offset : offset + size]
    if len(block) < size or data[offset + size] != 0:
        raise ValueError("a block is compressed or cut off")
    restarts = int.from_bytes(block[-4:], "little")
    key, position, end = b"", 0, size - 4 * (restarts + 1)
    while position < end:
        shared, position = varint(block, position)
        rest, position = varint(block, position)
        length, position = varint(block, position)
        if shared + rest > _MAX_KEY:
            raise ValueError("a name is too long")
        key = key[:shared] + block[position : position + rest]
        yield key, block[position + rest : position + rest + length]
        position += rest + length

"""Reader for PyTorch's weight files (pytorch_model.bin) that needs no PyTorch and does not execute pickled code.

Since PyTorch 1.6 such a file is a ZIP archive with the pickle `data.pkl` and one file per storage; before, it was five
consecutive pickles, followed by the storages' bytes.  In both, a tensor is a view of a storage.
"""

from __future__ import annotations

import math
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from ernie.errors import UserError
from ernie.json_file import check_not_lfs_pointer
from ernie.model.published.arrays import bfloat16_to_float32, check_growth, shaped
from ernie.model.published.pickles import SafeUnpickler, ordered_dict, unpickle

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_TYPES = {
    "FloatStorage": "<f4",
    "HalfStorage": "<f2",
    "DoubleStorage": "<f8",
    "BFloat16Storage": "<u2",
    "LongStorage": "<i8",
    "IntStorage": "<i4",
    "ShortStorage": "<i2",
    "CharStorage": "i1",
    "ByteStorage": "u1",
    "BoolStorage": "?",
}


@dataclass
class _Storage:
    """A storage; `bytes_` is filled in after unpickling."""

    kind: str
    bytes_: bytes = b""


@dataclass(frozen=True)
class _Tensor:
    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def read_torch(path: Path) -> dict[str, np.ndarray]:
    """Read the tensors of a `pytorch_model.bin` by name.

    bfloat16 is converted to float32.  Raises UserError when the file is damaged or holds anything but weights.
    """
    check_not_lfs_pointer(path)
    try:
        content = _read_archive(path) if zipfile.is_zipfile(path) else _read_legacy(path)
    except UserError:
        raise
    except Exception as error:  # a damaged file can raise any exception
        raise UserError(f"{path}: is damaged ({error}); fetch it again") from None
    if isinstance(content, dict) and not _holds_tensors(content):  # the weights lie in a training checkpoint
        inner = [part for part in content.values() if isinstance(part, dict) and _holds_tensors(part)]
        if len(inner) == 1:
            [content] = inner
        elif inner or content:
            keys = ", ".join(map(str, content))
            raise UserError(f"{path}: expected weights by name, found {keys:.80}; save the weights alone")
    if not isinstance(content, dict):
        raise UserError(f"{path}: expected weights by name, found {type(content).__name__}")
    tensors = {name: item for name, item in content.items() if isinstance(item, _Tensor)}
    check_growth(sum(map(_size, tensors.values())), path.stat().st_size, path)
    return {name: _values(item, path) for name, item in tensors.items()}


def _size(tensor: _Tensor) -> int:
    """Return the bytes of a tensor; of one that is larger than its storage, which is refused later, the storage's."""
    size = math.prod(tensor.shape) * np.dtype(_TYPES[tensor.storage.kind]).itemsize
    return min(size, len(tensor.storage.bytes_))


def _holds_tensors(content: dict[Any, Any]) -> bool:
    return any(isinstance(item, _Tensor) for item in content.values())


def _read_archive(path: Path) -> Any:
    with zipfile.ZipFile(path) as archive:
        return _unpickle_archive(archive, path)


def _unpickle_archive(archive: zipfile.ZipFile, path: Path) -> Any:
    names = archive.namelist()
    pickles = [name for name in names if name.endswith("/data.pkl") or name == "data.pkl"]
    if len(pickles) != 1:
        raise UserError(f"{path}: is a ZIP archive, but not one of PyTorch's: there is no data.pkl in it")
    root = pickles[0].removesuffix("data.pkl")
    _check_members(archive, path)
    if f"{root}byteorder" in names and archive.read(f"{root}byteorder") != b"little":
        raise UserError(f"{path}: was written on a big-endian machine; only little-endian files can be read")
    storages: dict[str, _Storage] = {}
    with archive.open(pickles[0]) as stream:
        content = unpickle(_Unpickler(stream, path, storages), path)
    for key, storage in storages.items():
        if f"{root}data/{key}" not in names:
            raise UserError(f"{path}: is damaged: the storage {key} is missing")
        storage.bytes_ = archive.read(f"{root}data/{key}")
    return content


def _check_members(archive: zipfile.ZipFile, path: Path) -> None:
    """Raise UserError if the parts of an archive, which PyTorch does not compress, are longer than the file."""
    size = path.stat().st_size
    for member in archive.infolist():
        if member.file_size > size:
            name = member.filename.rpartition("/")[2]
            raise UserError(f"{path}: is damaged: its part {name:.40} is longer than the file")
    check_growth(sum(member.file_size for member in archive.infolist()), size, path)


def _read_legacy(path: Path) -> Any:
    size = path.stat().st_size
    with path.open("rb") as stream:
        storages: dict[str, _Storage] = {}
        magic, _, _, content, keys = (unpickle(_Unpickler(stream, path, storages), path) for _ in range(5))
        if magic != _LEGACY_MAGIC:
            raise UserError(f"{path}: is no file of PyTorch's")
        if not isinstance(keys, list) or set(keys) != set(storages):
            raise UserError(f"{path}: is damaged: it does not hold the storages that its tensors lie in")
        for key in keys:
            length = int.from_bytes(stream.read(8), sys.byteorder)
            storage = storages[key]
            storage.bytes_ = stream.read(min(length * np.dtype(_TYPES[storage.kind]).itemsize, size))
    return content


class _Unpickler(SafeUnpickler):
    """Unpickles tensors as views of storages whose bytes are read later."""

    def __init__(self, stream: IO[bytes], path: Path, storages: dict[str, _Storage]):
        super().__init__(stream, path, _KNOWN)
        self._storages = storages

    def persistent_load(self, pid: Any) -> _Storage:
        """Return the storage for a persistent id: ("storage", type, key, device, length, ...)."""
        _, kind, key, *_ = pid
        if not isinstance(kind, str) or kind not in _TYPES:
            raise ValueError("a storage of unknown type")
        return self._storages.setdefault(key, _Storage(kind))


def _rebuild_tensor(
    storage: _Storage, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], *_: Any
) -> _Tensor:
    numbers = (offset, *shape, *strides)
    if not isinstance(storage, _Storage) or len(shape) != len(strides) or not all(map(_is_size, numbers)):
        raise ValueError("a tensor without a storage, a shape and strides")
    return _Tensor(storage, offset, tuple(shape), tuple(strides))


def _is_size(value: object) -> bool:
    return isinstance(value, int) and value >= 0


def _rebuild_parameter(tensor: _Tensor, *_: Any) -> _Tensor:
    return tensor


_KNOWN: dict[tuple[str, str], Callable[..., Any] | str] = {
    ("collections", "OrderedDict"): ordered_dict,
    ("torch._utils", "_rebuild_tensor"): _rebuild_tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    **{("torch", name): name for name in _TYPES},
}


def _values(tensor: _Tensor, path: Path) -> np.ndarray:
    kind = np.dtype(_TYPES[tensor.storage.kind])
    available = len(tensor.storage.bytes_) // kind.itemsize
    flat = np.frombuffer(tensor.storage.bytes_, kind, available)
    last = tensor.offset + sum((n - 1) * stride for n, stride in zip(tensor.shape, tensor.strides, strict=True))
    if 0 in tensor.shape:
        return shaped(np.empty(0, np.float32 if tensor.storage.kind == "BFloat16Storage" else kind), tensor.shape, path)
    if last >= len(flat):
        raise UserError(f"{path}: is cut off: a tensor of shape {list(tensor.shape)} extends past its storage")
    if math.prod(tensor.shape) > len(flat):  # of a view that repeats its elements
        raise UserError(f"{path}: a tensor of shape {list(tensor.shape)} is larger than its storage; save a copy of it")
    strides = [stride * kind.itemsize for stride in tensor.strides]
    view = np.lib.stride_tricks.as_strided(flat[tensor.offset :], tensor.shape, strides, writeable=False)
    values: np.ndarray = np.ascontiguousarray(view).reshape(tensor.shape)
    if tensor.storage.kind == "BFloat16Storage":
        return bfloat16_to_float32(values)
    return values

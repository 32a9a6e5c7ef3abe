"""Opening of files, plain or compressed, by their names; and the limits on what a small file may grow to."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from ernie.data.remote import Address
from ernie.errors import UserError
from ernie.json_file import check_not_lfs_pointer

# A file may hold this many times its own size, and any file this many bytes.  Text shrinks to a third or a tenth.
MOST_TIMES, ALWAYS = 250, 1 << 28
_PIECE = 1 << 12  # compressed bytes given to Zstandard at a time: a few bytes may stand for 128 KB
_BUFFER = 1 << 17


class _Kind(NamedTuple):
    """A compression: its name, how such a file begins, the command that unpacks it, and how one is opened."""

    name: str
    magic: tuple[bytes, ...]
    command: str
    open: Callable[[BinaryIO], Any]


_KINDS = {
    ".gz": _Kind("gzip", (b"\x1f\x8b",), "gzip -dc", lambda file: gzip.GzipFile(fileobj=file)),
    ".bz2": _Kind("bzip2", (b"BZh",), "bzip2 -dc", bz2.BZ2File),
    ".xz": _Kind("xz", (b"\xfd7zXZ\0",), "xz -dc", lzma.LZMAFile),
    ".zst": _Kind(
        "Zstandard",
        (b"\x28\xb5\x2f\xfd", *(b"%c\x2a\x4d\x18" % n for n in range(0x50, 0x60))),
        "zstd -dc",
        lambda file: _Zstandard(file),
    ),
}
COMPRESSIONS = tuple(_KINDS)
_OTHERS = {
    b"PAR1": "a Parquet file; give it a name that ends in .parquet",
    b"PK\x03\x04": "a ZIP archive; unpack it with unzip",
}


class Damaged(Exception):
    """Compressed content that breaks off or is wrong; the message goes on after the file's name."""


def uncompressed_name(name: str) -> str:
    """Return a file's name without the suffix of a compression, if it has one."""
    return name[: -len(suffix)] if (suffix := compression(name)) else name


def compression(name: str) -> str:
    """Return the suffix of the compression that a name ends in, or ""."""
    return next((suffix for suffix in COMPRESSIONS if name.lower().endswith(suffix)), "")


def compression_of(content: bytes) -> str:
    """Return the suffix of the compression of a file that begins with `content`, or ""."""
    return next((suffix for suffix, kind in _KINDS.items() if content.startswith(kind.magic)), "")


def remedy_for(content: bytes) -> str:
    """Return what a binary file is, and what to do with it, judged by its first bytes; "" if unknown."""
    if suffix := compression_of(content):
        return f"compressed; unpack it with {_KINDS[suffix].command}, or give a file whose name ends in {suffix}"
    return next((what for magic, what in _OTHERS.items() if content.startswith(magic)), "")


def limit(size: int) -> int:
    """Return the most bytes that a file of `size` bytes may hold, unpacked."""
    return max(ALWAYS, MOST_TIMES * size)


def too_large(path: Path | Address | str, size: int) -> UserError:
    """Return the error for a file that holds more than `limit(size)`."""
    return UserError(
        f"{path}: holds more than {limit(size) >> 20:,} MB in {size / 1e6:.1f} MB on the disk. A file may hold "
        f"{MOST_TIMES} times its size (any file {ALWAYS >> 20} MB), since one made to fill the memory holds more. "
        "Unpack it, if you trust it, and give what was in it"
    )


def unpacked(path: Path | Address, raw: BinaryIO, suffix: str | None = None) -> BinaryIO:
    """Return the content of an open file: unpacked if `suffix`, by default that of its name, is a compression's.

    Reading raises Damaged for content that breaks off or is wrong, and UserError for content beyond the limit, and for
    a pointer of Git LFS.
    """
    if isinstance(path, Path):
        check_not_lfs_pointer(path)
    suffix = compression(path.name) if suffix is None else suffix
    if not suffix:
        return raw
    kind = _KINDS[suffix]
    begins = raw.read(8)
    raw.seek(0)
    if begins and not begins.startswith(kind.magic):
        raise UserError(
            f"{path}: is not a {kind.name} file, though its name says so; take {suffix} off it"
            + (f", or rename it to {other}" if (other := compression_of(begins)) else "")
        )
    try:
        size = raw.seek(0, io.SEEK_END)
    except io.UnsupportedOperation:  # a server that does not say it
        size = 1
    raw.seek(0)
    return cast(BinaryIO, io.BufferedReader(_Limited(path, kind, raw, size), _BUFFER))


class _Limited(io.RawIOBase):
    """The unpacked content of a file, as far as the limit."""

    def __init__(self, path: Path | Address, kind: _Kind, raw: BinaryIO, size: int):
        self._path, self._kind, self._size = path, kind, size
        self._file = kind.open(raw) if size else io.BytesIO()
        self._read = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            content = self._file.read1(len(buffer))  # what there is, also before an error
        except (EOFError, zlib.error, lzma.LZMAError, ValueError, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:
                raise
            what = (
                "breaks off"
                if isinstance(error, EOFError)
                else f"is damaged ({error}), and what was read of it may be wrong"
            )
            raise Damaged(f"the {self._kind.name} file {what}", self._kind.command) from None
        buffer[: len(content)] = content
        self._read += len(content)
        if self._read > limit(self._size):
            raise too_large(self._path, self._size)
        return len(content)


class _Zstandard:
    """The content of a Zstandard file of any number of frames.

    The library's own reader takes a file that breaks off for one that ends there.
    """

    def __init__(self, file: BinaryIO):
        import zstandard

        self._decompressor = zstandard.ZstdDecompressor()
        self._error = zstandard.ZstdError
        self._file = file
        self._frame: Any = None
        self._compressed, self._content = b"", memoryview(b"")

    def read1(self, size: int) -> memoryview:
        while not self._content:
            self._compressed = self._compressed or self._file.read(_PIECE)
            if not self._compressed:
                if self._frame is not None:
                    raise EOFError
                break
            self._content = memoryview(self._next())
        content, self._content = self._content[:size], self._content[size:]
        return content

    def _next(self) -> bytes:
        """Unpack the compressed bytes that were read last."""
        self._frame = self._frame or self._decompressor.decompressobj()
        try:
            content = self._frame.decompress(self._compressed)
        except self._error as error:
            raise ValueError(str(error)) from None
        self._compressed = self._frame.unused_data if self._frame.eof else b""
        if self._frame.eof:
            self._frame = None
        return content

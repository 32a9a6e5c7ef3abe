"""Numbered lines of a text file, plain or compressed, read in bounded memory."""

from __future__ import annotations

import codecs
import io
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from ernie.data.compressed import Damaged, remedy_for, unpacked
from ernie.data.raw import Dropped, Place
from ernie.data.remote import Address, size_of
from ernie.errors import DamagedFile, UserError

NOT_UTF8 = "invalid UTF-8"  # a reason, for counting
_PIECE = 1 << 20  # bytes
_FIRST_PIECE = 1 << 12  # enough to see what a file is
_FEW_NULS, _MOST_NULS = (
    2,
    0.2,
)  # NUL bytes of a line, and their fraction: of Latin letters in UTF-16 a half
_MARKS = {  # byte order marks, with their encodings; that of UTF-32 begins as one of UTF-16
    codecs.BOM_UTF32_LE: "UTF-32LE",
    codecs.BOM_UTF32_BE: "UTF-32BE",
    codecs.BOM_UTF16_LE: "UTF-16LE",
    codecs.BOM_UTF16_BE: "UTF-16BE",
}
MAX_LINE = 1 << 24  # bytes; longer lines are skipped without holding them in memory


class Line(NamedTuple):
    """One line without its line break; `text` is None when it could not be read.

    `reason` and `problem` then say why: a short key for counting, and a message.
    """

    number: int
    text: str | None
    reason: str = ""
    problem: str = ""

    def dropped(self, file: str) -> Dropped:
        """Return the Dropped for a document of `file` that contains this unreadable line."""
        return Dropped(Place(file, self.number), self.reason, self.problem)


class LineFile:
    """The lines of a file, or its content.  `bytes_read` is the position in the file on disk, compressed or not.

    `suffix` is that of the compression, where the file's name does not end in it; for `returns` see `decoded`.
    """

    def __init__(self, path: Path | Address, suffix: str | None = None, *, returns: bool = False):
        self.path = path
        self._suffix = suffix
        self._returns = returns
        self._raw: BinaryIO | None = None
        self._end = 0
        self._size: int | None = None
        self._lines_read: int | None = None

    def note(self, fraction: float) -> None:
        """Note how much of the file was read by somebody who opened it otherwise."""
        self._size = size_of(self.path) if self._size is None else self._size
        self._end = round(fraction * self._size)

    @property
    def bytes_read(self) -> int:
        return self._end if self._raw is None or self._raw.closed else self._raw.tell()

    def __iter__(self) -> Iterator[Line]:
        """Yield the lines.  Raises UserError when the file cannot be read, is damaged or breaks off, see `unpacked`."""
        self._lines_read = 0
        with self._opened() as file:
            for line in decoded(file, self._returns):
                self._lines_read = line.number
                yield line

    def pieces(self) -> Generator[str, None, None]:
        """Yield the text in pieces of bounded size that need not end with a line.

        Raises UserError as for lines, and for text that is not UTF-8.
        """
        self._lines_read = lines = 0
        decoder = codecs.getincrementaldecoder("utf-8-sig")()
        with self._opened() as file:
            content = read_some(file, min(_FIRST_PIECE, _PIECE))
            if _is_utf16(content):
                raise UserError(f"{self.path}:1: {_not_utf8(content.index(0) + 1, content)}")
            while content:
                try:
                    piece = decoder.decode(content)
                except UnicodeDecodeError as error:
                    before = error.object[: error.start]
                    line, at = lines + before.count(b"\n") + 1, len(before) - before.rfind(b"\n")
                    raise DamagedFile(f"{self.path}:{line}: {_not_utf8(at, content)}") from None
                self._lines_read = lines = lines + piece.count("\n")
                yield piece
                content = read_some(file, _PIECE)

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        with self.binary() as file:
            yield _in_utf8(file)

    @contextmanager
    def binary(self) -> Iterator[BinaryIO]:
        """Open the content, unpacked.  Raises UserError when it cannot be read, is damaged or breaks off."""
        try:
            with self.path.open("rb") as self._raw:
                yield unpacked(self.path, self._raw, self._suffix)
                self._end = self._raw.tell()
        except Damaged as error:
            what, command = error.args
            after = "" if self._lines_read is None else f" after line {self._lines_read:,}"
            or_unpack = f", or unpack what is there with '{command} {self.path}' and give the unpacked file"
            remedy = or_unpack if isinstance(self.path, Path) else ""
            raise DamagedFile(f"{self.path}: {what}{after}. Fetch it again{remedy}") from None
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read: {error.strerror or error}") from None


def read_some(file: BinaryIO, size: int) -> bytes:
    """Return at most `size` bytes, or what there is of them before an error; none only at the end."""
    return cast(bytes, getattr(file, "read1", file.read)(size))


def _in_utf8(file: BinaryIO) -> BinaryIO:
    """Return a file, which is recoded if it begins with a mark of UTF-16 or UTF-32."""
    begins = cast(io.BufferedReader, file).peek(4)
    encoding = next((name for mark, name in _MARKS.items() if begins.startswith(mark)), "")
    return cast(BinaryIO, io.BufferedReader(_Recoded(file, encoding), _PIECE)) if encoding else file


class _Recoded(io.RawIOBase):
    """The content of a file, recoded to UTF-8.  Damaged parts become invalid UTF-8: only their lines are unreadable."""

    def __init__(self, file: BinaryIO, encoding: str):
        self._file = file
        self._decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
        self._content = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._content and (piece := read_some(self._file, len(buffer))):
            self._content = self._recode(piece)
        self._content = self._content or self._recode(b"", final=True)
        size = min(len(buffer), len(self._content))
        buffer[:size], self._content = self._content[:size], self._content[size:]
        return size

    def _recode(self, piece: bytes, final: bool = False) -> bytes:
        try:
            return self._decoder.decode(piece, final).encode(errors="surrogatepass")
        except UnicodeDecodeError:
            self._decoder.reset()
            return b"\xff"


def decoded(file: BinaryIO, returns: bool = False) -> Iterator[Line]:
    """Yield the lines of an open file, each as soon as it is available.

    Lines end in a line feed.  With `returns`, a file whose first line does not, but holds carriage returns, has lines
    that end in these, as on old Macintosh computers.
    """
    first = file.readline(MAX_LINE)
    lines = _bounded_by_returns(first, file) if returns and _ends_in_returns(first) else _bounded(first, file)
    for number, content in enumerate(lines, start=1):
        yield _line(number, content)


def _ends_in_returns(first: bytes) -> bool:
    return not first.endswith(b"\n") and b"\r" in first[:-1]


def _bounded(content: bytes, file: BinaryIO) -> Iterator[bytes | None]:
    """Yield raw lines, the first of which is `content`; None for one longer than MAX_LINE."""
    while content:
        if len(content) < MAX_LINE or content.endswith(b"\n"):
            yield content
        else:
            while content and not content.endswith(b"\n"):
                content = file.readline(MAX_LINE)
            yield None
        content = file.readline(MAX_LINE)


def _bounded_by_returns(content: bytes, file: BinaryIO) -> Iterator[bytes | None]:
    """As `_bounded`, of lines that end in a carriage return, a line feed or both."""
    rest, too_long = b"", False
    while content:
        *lines, rest = re.split(rb"\r\n|\r(?!\Z)|\n", rest + content)
        for line in lines:
            yield None if too_long else line
            too_long = False
        if len(rest) >= MAX_LINE:
            rest, too_long = rest[-1:], True
        content = file.readline(MAX_LINE)
    if too_long or rest:
        yield None if too_long else rest


def _line(number: int, content: bytes | None) -> Line:
    if content is None:
        return Line(number, None, "line too long", f"the line is longer than {MAX_LINE >> 20} MB")
    content = content.removeprefix(codecs.BOM_UTF8)  # files that were joined have one within
    if _is_utf16(content):
        return Line(number, None, NOT_UTF8, _not_utf8(content.index(0) + 1, content, number == 1))
    try:
        return Line(number, content.decode("utf-8").rstrip("\r\n"))
    except UnicodeDecodeError as error:
        return Line(number, None, NOT_UTF8, _not_utf8(error.start + 1, content, number == 1))


def _is_utf16(content: bytes) -> bool:
    """Whether content has so many NULs that it is binary, or seems to be UTF-16 without a byte order mark."""
    return content.count(0) > max(_FEW_NULS, _MOST_NULS * len(content))


def _not_utf8(byte: int, content: bytes, begins_file: bool = True) -> str:
    """Return what is wrong with content, and what to do with a file that begins so."""
    problem = f"byte {byte} of the line is not UTF-8 text"
    if not begins_file:
        return problem
    if remedy := remedy_for(content):
        return f"{problem}, but {remedy}"
    if not _is_utf16(content):
        return f"{problem}; iconv -f ENCODING -t UTF-8 FILE converts the file"
    even, odd = (content[first::2].count(0) for first in (0, 1))
    if min(even, odd) > _FEW_NULS:
        return f"{problem}, but binary"
    return f"{problem}; iconv -f UTF-16{'BE' if even > odd else 'LE'} -t UTF-8 FILE converts the file"

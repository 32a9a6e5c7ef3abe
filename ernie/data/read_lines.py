"""Numbered lines of a text file, plain or gzipped, read in bounded memory."""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from ernie.data.raw import Dropped, Place
from ernie.errors import UserError

NOT_UTF8 = "invalid UTF-8"  # a reason, for counting
_GZIP = b"\x1f\x8b"  # how a gzip file begins
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
    """The lines of a file.  `bytes_read` is the position in the file on disk, compressed or not."""

    def __init__(self, path: Path):
        self.path = path
        self._raw: BinaryIO | None = None
        self._end = 0

    @property
    def bytes_read(self) -> int:
        return self._end if self._raw is None or self._raw.closed else self._raw.tell()

    def __iter__(self) -> Iterator[Line]:
        """Yield the lines.  Raises UserError when the file cannot be read, or is a damaged or truncated gzip file."""
        number = 0
        try:
            with self.path.open("rb") as self._raw:
                gzipped = self.path.suffix.lower() == ".gz"
                file = cast(BinaryIO, gzip.GzipFile(fileobj=self._raw)) if gzipped else self._raw
                for line in decoded(file):
                    number = line.number
                    yield line
                self._end = self._raw.tell()
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            if not number and "Not a gzipped file" in str(error):
                raise UserError(f"{self.path}: is not a gzip file, though its name says so; take .gz off it") from None
            what = "breaks off" if isinstance(error, EOFError) else f"is damaged ({error})"
            raise UserError(
                f"{self.path}: the gzip file {what} after line {number:,}. Fetch it again, or unpack what is there "
                f"with 'gzip -dc {self.path}' and give the unpacked file."
            ) from None
        except OSError as error:
            raise UserError(f"{self.path}: cannot be read: {error.strerror or error}") from None


def decoded(file: BinaryIO) -> Iterator[Line]:
    """Yield the lines of an open file, each as soon as it is available."""
    for number, content in enumerate(_bounded(file), start=1):
        yield _line(number, content)


def _bounded(file: BinaryIO) -> Iterator[bytes | None]:
    """Yield raw lines; None for one longer than MAX_LINE."""
    while content := file.readline(MAX_LINE):
        if len(content) < MAX_LINE or content.endswith(b"\n"):
            yield content
            continue
        while content and not content.endswith(b"\n"):
            content = file.readline(MAX_LINE)
        yield None


def _line(number: int, content: bytes | None) -> Line:
    if content is None:
        return Line(number, None, "line too long", f"the line is longer than {MAX_LINE >> 20} MB")
    if number == 1:
        content = content.removeprefix(codecs.BOM_UTF8)
    try:
        return Line(number, content.decode("utf-8").rstrip("\r\n"))
    except UnicodeDecodeError as error:
        kind = "UTF-16" if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "ENCODING"
        hint = f"; iconv -f {kind} -t UTF-8 FILE converts the file" if number == 1 else ""
        if number == 1 and content.startswith(_GZIP):
            hint = ", but compressed; unpack it with gzip -dc, or give a file whose name ends in .gz"
        return Line(number, None, NOT_UTF8, f"byte {error.start + 1} of the line is not UTF-8 text{hint}")

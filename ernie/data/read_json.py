"""Documents of JSON: an object a line, a list of objects, or objects over several lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import closing
from itertools import chain
from typing import Any, Literal

from ernie.data.raw import Dropped, Place, RawDocument, ReadOptions
from ernie.data.read_lines import MAX_LINE, LineFile
from ernie.data.read_rows import document_of
from ernie.errors import DamagedFile, UserError

_BETWEEN = re.compile(r"[\s,\[\]\ufeff]*")  # what may stand between two rows of a list
_LOOKS_LIKE_JSON = re.compile(r"(?:\[\s*)?\{\s*(?:\"(?:[^\"\\]|\\.)*\"|'[^']*')\s*:")  # or as Python writes objects
_ENDS_LINE = re.compile(r"[ \r]*(?:\n|\Z)")
_MOST_DIGITS = 4_000  # Python makes no number of more


def _whole(digits: str) -> int | str:
    """Return a whole number, as a text if it is too long for one."""
    return int(digits) if len(digits) <= _MOST_DIGITS else digits


_DECODER = json.JSONDecoder(parse_int=_whole)

Form = Literal["lines", "document", "broken", ""]


def json_form(lines: LineFile) -> Form:
    """Return how a file begins: as JSON lines, as another JSON document, as a broken one, or not as JSON ("")."""
    with closing(lines.pieces()) as pieces:
        try:
            first = next(pieces, "").lstrip()
        except UserError:  # whoever reads it will say so
            return ""
        if not _LOOKS_LIKE_JSON.match(first):
            return ""
        values = _Values(lines, chain([first], pieces))
        try:
            values.next()
        except DamagedFile:
            raise
        except UserError:
            return "broken"
    return "lines" if first.startswith("{") and values.is_line else "document"


def read_json(name: str, lines: LineFile, options: ReadOptions) -> Iterator[RawDocument | Dropped]:
    """Yield the documents of a `.json` file, of whichever form."""
    return (read_json_lines if json_form(lines) == "lines" else read_json_document)(name, lines, options)


def read_jsonl(name: str, lines: LineFile, options: ReadOptions) -> Iterator[RawDocument | Dropped]:
    """Yield the documents of a `.jsonl` file, also where it is a list of objects or has objects of several lines."""
    return (read_json_document if json_form(lines) == "document" else read_json_lines)(name, lines, options)


def read_json_lines(name: str, lines: LineFile, options: ReadOptions) -> Iterator[RawDocument | Dropped]:
    """Yield one document per line, skipping blank lines."""
    for line in lines:
        place = Place(name, line.number)
        if line.text is None:
            yield line.dropped(name)
        elif line.text.strip():
            try:
                row = _DECODER.decode(line.text)
            except (ValueError, RecursionError) as error:
                yield Dropped(place, "not JSON", f"the line is not JSON: {error}")
                continue
            yield document_of(row, place, options)


def read_json_document(name: str, lines: LineFile, options: ReadOptions) -> Iterator[RawDocument | Dropped]:
    """Yield one document per object of a list, or of objects that follow one another.

    Raises UserError where the text is not JSON, since nobody knows where the next object begins.
    """
    with closing(lines.pieces()) as pieces:
        values = _Values(lines, pieces)
        while (value := values.next()) is not None:
            yield document_of(value, Place(name, values.line), options)


class _Values:
    """The objects of a JSON document, read in bounded memory.

    `line` is that at which the last one began; `is_line` says whether it is all of its line.
    """

    def __init__(self, lines: LineFile, pieces: Iterator[str]):
        self._path = lines.path
        self._pieces = pieces
        self._text = ""
        self._at = 0
        self._line = self.line = 1
        self._open = 0  # lists that are not closed yet
        self.is_line = self._has_read = False

    def next(self) -> Any:
        """Return the next object, or None at the end.  Raises UserError for what is not JSON, or breaks off."""
        while self._skip() == len(self._text):
            if not self._read():
                if self._open > 0:
                    raise DamagedFile(
                        f"{self._path}: breaks off: the list of JSON objects does not end. Fetch it again"
                    )
                return None
        self.line = self._line
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if len(self._text) - self._at < MAX_LINE and self._read():
                    continue
                what = getattr(error, "msg", str(error))
                raise (DamagedFile if self._has_read else UserError)(
                    f"{self._path}:{self.line}: here begins no JSON object of at most {MAX_LINE >> 20} MB ({what})"
                ) from None
            self.is_line = "\n" not in self._text[self._at : end] and bool(_ENDS_LINE.match(self._text, end))
            self._advance(end)
            self._has_read = True
            return {} if value is None else value

    def _skip(self) -> int:
        """Advance to the next object, and return where it begins."""
        between = _BETWEEN.match(self._text, self._at)
        assert between is not None
        self._open += between.group().count("[") - between.group().count("]")
        self._advance(between.end())
        return self._at

    def _advance(self, to: int) -> None:
        self._line += self._text.count("\n", self._at, to)
        self._at = to

    def _read(self) -> bool:
        """Read on; return whether there was anything."""
        piece = next(self._pieces, "")
        self._text, self._at = self._text[self._at :] + piece, 0
        return bool(piece)

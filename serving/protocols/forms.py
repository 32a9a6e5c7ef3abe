"""Forms with a file: bodies of the type multipart/form-data (RFC 7578)."""

from __future__ import annotations

from dataclasses import dataclass, field
from tempfile import TemporaryFile
from typing import Any, BinaryIO, TypeVar

import msgspec
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from serving.http import Call, Problem

M = TypeVar("M")
_MOST_PARTS = 100
_MOST_FIELD = 100_000  # bytes of a field that is no file
_PIECE = 1 << 18  # bytes of a body that are parsed at a time
_FILE = "file"  # the name of the field with the file


@dataclass
class _Part:
    """A part of a form while it is read: the headers, their last one in two pieces, and the content or the file."""

    headers: list[tuple[bytearray, bytearray]] = field(default_factory=list)
    name: str = ""
    content: bytearray = field(default_factory=bytearray)
    file: BinaryIO | None = None

    def begin(self) -> None:
        """Learn from the headers what the content is."""
        for name, value in self.headers:
            if name.lower() == b"content-disposition":
                self.name = parse_options_header(bytes(value))[1].get(b"name", b"").decode("utf-8", "replace")
        if self.name == _FILE:
            self.file = TemporaryFile()  # noqa: SIM115 - closed once nothing refers to it

    def add(self, data: bytes) -> None:
        """Take more of the content.  Raises Problem for too much of a field that is no file."""
        if self.file is not None:
            self.file.write(data)
            return
        self.content += data
        if len(self.content) > _MOST_FIELD:
            raise Problem(413, "too_large", f"{self.name:.60}: expected at most {_MOST_FIELD:,} bytes")


def read_form(call: Call, kind: type[M]) -> tuple[M, BinaryIO]:
    """Return the fields of a form as a message, and its file.  It may take long: call it in a thread.

    A field whose name ends with [] is a list.  Raises Problem for what is no form, and for one without the file or with
    other fields.
    """
    values: dict[str, Any] = {}
    found: BinaryIO | None = None
    for part in _parts(call):
        text = part.content.decode("utf-8", "replace")
        if part.file is not None:
            found = part.file
        elif part.name.endswith("[]"):
            values.setdefault(part.name.removesuffix("[]"), []).append(text)
        else:
            values[part.name] = text
    if found is None:
        raise Problem(422, "invalid", f"{_FILE}: the form has no such file")
    found.seek(0)
    try:
        return msgspec.convert(values, kind, strict=False), found
    except msgspec.ValidationError as error:
        raise Problem(422, "invalid", f"the request: {error}") from None


def _parts(call: Call) -> list[_Part]:
    """Return the parts of a form.  Raises Problem for a body that is none."""
    said = call.headers.get(b"content-type", b"")
    kind, options = parse_options_header(said)
    boundary = options.get(b"boundary")
    if kind.lower() != b"multipart/form-data" or not boundary:
        found = f", found {said.decode('latin-1'):.60}" if said else ""
        wanted = "a form of the type multipart/form-data, with its boundary"
        raise Problem(400, "malformed", f"the body: expected {wanted}{found}")
    parts, is_whole = list[_Part](), False

    def begin() -> None:
        if len(parts) == _MOST_PARTS:
            raise Problem(413, "too_large", f"the body: expected at most {_MOST_PARTS} parts")
        parts.append(_Part())

    def begin_header() -> None:
        parts[-1].headers.append((bytearray(), bytearray()))

    def add_name(data: bytes, first: int, last: int) -> None:
        parts[-1].headers[-1][0].extend(data[first:last])

    def add_value(data: bytes, first: int, last: int) -> None:
        parts[-1].headers[-1][1].extend(data[first:last])

    def begin_content() -> None:
        parts[-1].begin()

    def add_content(data: bytes, first: int, last: int) -> None:
        parts[-1].add(data[first:last])

    def end() -> None:
        nonlocal is_whole
        is_whole = True

    try:
        parser = MultipartParser(
            boundary,
            {
                "on_part_begin": begin,
                "on_header_begin": begin_header,
                "on_header_field": add_name,
                "on_header_value": add_value,
                "on_headers_finished": begin_content,
                "on_part_data": add_content,
                "on_end": end,
            },
        )
        while data := call.form.read(_PIECE):
            parser.write(data)
        parser.finalize()
    except FormParserError as error:
        raise Problem(400, "malformed", f"the body is no form: {error}") from None
    if not is_whole:
        raise Problem(400, "malformed", "the body is no form: its end is missing")
    return parts

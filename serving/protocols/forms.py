"""Forms with files: bodies of the type multipart/form-data (RFC 7578)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from serving.http import Call, Problem

M = TypeVar("M")
_MOST_PARTS = 100
_MOST_FIELD = 100_000  # bytes of a field that is no file


@dataclass
class File:
    """A file in a form, and the name that the client gives it."""

    name: str
    content: bytes


@dataclass
class _Part:
    """A part of a form while it is read: what its headers say, and its content in pieces."""

    headers: list[tuple[bytearray, bytearray]] = field(default_factory=list)
    pieces: list[bytes] = field(default_factory=list)

    def options(self) -> Mapping[bytes, bytes]:
        """Return what the part says of itself, its `name` and perhaps a `filename`."""
        for name, value in self.headers:
            if name.lower() == b"content-disposition":
                return parse_options_header(bytes(value))[1]
        return {}


def read_form(call: Call, kind: type[M], file_field: str = "file") -> tuple[M, File]:
    """Return the fields of a form as a message, and its file.  It may take long: call it in a thread.

    A field whose name ends with [] is a list.  Raises Problem for what is no form, and for one without the
    file or with other fields.
    """
    values: dict[str, Any] = {}
    found: File | None = None
    for part in _parts(call):
        options = part.options()
        name = options.get(b"name", b"").decode("utf-8", "replace")
        content = b"".join(part.pieces)
        if name == file_field:
            found = File(options.get(b"filename", b"").decode("utf-8", "replace"), content)
            continue
        if len(content) > _MOST_FIELD:
            raise Problem(
                413, "too_large", f"{name:.60}: expected at most {_MOST_FIELD:,} bytes, found {len(content):,}"
            )
        text = content.decode("utf-8", "replace")
        if name.endswith("[]"):
            values.setdefault(name.removesuffix("[]"), []).append(text)
        else:
            values[name] = text
    if found is None:
        raise Problem(422, "invalid", f"{file_field}: the form has no such file")
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
        raise Problem(400, "malformed", f"the body: expected a form of the type multipart/form-data{found}")
    parts, is_whole = list[_Part](), False

    def begin() -> None:
        if len(parts) == _MOST_PARTS:
            raise Problem(413, "too_large", f"the body: expected at most {_MOST_PARTS} parts")
        parts.append(_Part())

    def begin_header() -> None:
        parts[-1].headers.append((bytearray(), bytearray()))

    def end() -> None:
        nonlocal is_whole
        is_whole = True

    def add_name(data: bytes, first: int, last: int) -> None:
        parts[-1].headers[-1][0].extend(data[first:last])

    def add_value(data: bytes, first: int, last: int) -> None:
        parts[-1].headers[-1][1].extend(data[first:last])

    def add_content(data: bytes, first: int, last: int) -> None:
        parts[-1].pieces.append(data[first:last])

    try:
        parser = MultipartParser(
            boundary,
            {
                "on_part_begin": begin,
                "on_part_data": add_content,
                "on_header_begin": begin_header,
                "on_header_field": add_name,
                "on_header_value": add_value,
                "on_end": end,
            },
        )
        parser.write(call.body)
        parser.finalize()
    except FormParserError as error:
        raise Problem(400, "malformed", f"the body is no form: {error}") from None
    if not is_whole:
        raise Problem(400, "malformed", "the body is no form: its end is missing")
    return parts

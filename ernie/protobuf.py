"""The part of the protobuf wire format that descriptions of tensors and SentencePiece models use."""

from __future__ import annotations

from collections.abc import Iterator


def varint(data: bytes, position: int) -> tuple[int, int]:
    """Read the varint at `position`; return it and the position after it.

    Raises IndexError at the end of the data, and ValueError for a varint of more than 64 bits.
    """
    value = shift = 0
    while shift < 70:
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position
    raise ValueError("a number has more than 64 bits")


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the fields of a message as (field number, integer or bytes).  Raises ValueError for a damaged message."""
    position = 0
    while position < len(data):
        key, position = varint(data, position)
        number, wire_type = key >> 3, key & 7
        if wire_type == 0:
            value, position = varint(data, position)
            yield number, value
            continue
        if wire_type == 2:
            length, position = varint(data, position)
        elif wire_type in (1, 5):
            length = 8 if wire_type == 1 else 4
        else:
            raise ValueError(f"wire type {wire_type}")
        if position + length > len(data):
            raise ValueError("a field extends past the end")
        content = data[position : position + length]
        yield number, content if wire_type == 2 else int.from_bytes(content, "little")
        position += length

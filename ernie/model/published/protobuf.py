"""As much of the protobuf wire format as the descriptions of tensors need."""

from __future__ import annotations

from collections.abc import Iterator


def varint(data: bytes, place: int) -> tuple[int, int]:
    """A number of variable length at `place`: (number, the place behind it).

    Raises IndexError at the end, and ValueError where it does not end as a number of 64 bits does.
    """
    value = shift = 0
    while shift < 70:
        byte = data[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
    raise ValueError("a number has more than 64 bits")


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: (its number, a number or the bytes).  Raises ValueError for a damaged message."""
    place = 0
    while place < len(data):
        key, place = varint(data, place)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, place = varint(data, place)
            yield number, value
            continue
        if wire == 2:
            length, place = varint(data, place)
        elif wire in (1, 5):
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if place + length > len(data):
            raise ValueError("a field reaches behind the end")
        content = data[place : place + length]
        yield number, content if wire == 2 else int.from_bytes(content, "little")
        place += length

"""Variants of a serialized SentencePiece model, by its `sentencepiece_model.proto`."""

from __future__ import annotations

from collections.abc import Set

from ernie.protobuf import fields

_PIECES, _SELF_TEST, _NAME = 1, 4, 1  # numbers of fields
# Fields at the end of a message override those before: `type` CONTROL for a piece, and a `normalizer_spec` without a
# table that neither adds nor removes spaces.
_CONTROL = b"\x18\x03"
_IDENTITY = b"\x0a\x08identity\x12\x00\x18\x00\x20\x00"


def with_controls(model: bytes, names: Set[str]) -> bytes:
    """Return a model in which the pieces of these names are control symbols, which no text contains."""
    return _rewritten(model, {name.encode() for name in names})


def without_normalizer(model: bytes) -> bytes:
    """Return a model for text that is already normalized."""
    return model + b"\x1a" + bytes([len(_IDENTITY)]) + _IDENTITY


def without_self_test(model: bytes) -> bytes:
    """Return a model without the examples that are checked when it is loaded, which fail in a variant."""
    return _rewritten(model, set())


def _rewritten(model: bytes, names: Set[bytes]) -> bytes:
    parts = []
    for number, content in fields(model):
        if number == _SELF_TEST:
            continue
        assert isinstance(content, bytes)  # all fields of the message are messages
        if (
            number == _PIECES
            and names
            and next((value for key, value in fields(content) if key == _NAME), b"") in names
        ):
            content += _CONTROL
        parts += [bytes([number << 3 | 2]), _varint(len(content)), content]
    return b"".join(parts)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])

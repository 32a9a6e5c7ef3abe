"""Checks for lone surrogates, which JSON strings may hold and no tokenizer can read."""

from __future__ import annotations

from ernie.errors import UserError

LONE_SURROGATE = "half a surrogate pair, which stands for no character"


def is_encodable(text: str) -> bool:
    """Whether a text can be encoded as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(text: str) -> str:
    """Return the text with lone surrogates as escape sequences, so that it can be written as UTF-8."""
    return text.encode(errors="backslashreplace").decode()


def require_encodable(text: str) -> str:
    """Return the text.  Raises UserError when it holds a lone surrogate."""
    if not is_encodable(text):
        raise UserError(f"holds {LONE_SURROGATE}")
    return text


def invalid_text(text: object) -> UserError:
    """Return the error to raise for an input that a tokenizer's underlying library rejects."""
    problem = f"the text holds {LONE_SURROGATE}" if isinstance(text, str) else f"expected a text, found {text!r:.60}"
    return UserError(f"encode: {problem}")

"""Text that has characters only: what JSON may hold half of, half a surrogate pair, no tokenizer can read."""

from __future__ import annotations

from ernie.errors import UserError

HALF = "half a surrogate pair, which stands for no character"


def is_whole(text: str) -> bool:
    """Whether a text can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(text: str) -> str:
    """The text with what stands for no character spelled out, as an output that takes UTF-8 can have it."""
    return text.encode(errors="backslashreplace").decode()


def whole(text: str) -> str:
    """The text.  Raises UserError when it holds what stands for no character."""
    if not is_whole(text):
        raise UserError(f"holds {HALF}")
    return text


def unreadable(text: object) -> UserError:
    """What to raise for what the library underneath a tokenizer does not take for a text."""
    told = f"the text holds {HALF}" if isinstance(text, str) else f"expected a text, found {text!r:.60}"
    return UserError(f"encode: {told}")

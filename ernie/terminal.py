"""What a terminal gets to see: text in which characters that would control it are escaped.

File names, column names, keys, tokens and tensor names come from files of strangers and stand in messages.  Escape
sequences in them could hide, forge or colour text, set a title, or answer in the user's name.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from ernie.errors import Remark

_KEPT = "\n\t"
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_BIDIRECTIONAL = (0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x2028, 0x2029)
_BYTES = range(0xDC80, 0xDD00)  # how Python holds the bytes of a name that is not UTF-8
_ESCAPES = {
    **{code: f"\\x{code:02x}" for code in _CONTROLS if chr(code) not in _KEPT},
    **{code: f"\\u{code:04x}" for code in (*_BIDIRECTIONAL, *range(0xD800, 0xE000))},
    **{code: f"\\x{code - 0xDC00:02x}" for code in _BYTES},
}


def shown(text: str) -> str:
    """Return text with control characters, bidirectional marks and lone surrogates escaped as in Python's strings."""
    return text.translate(_ESCAPES)


def bounded(text: str, most: int = 4_000) -> str:
    """Return text without what each line has beyond `most` characters, as of a value that a stranger's file holds."""
    return "\n".join(
        line if len(line) <= most else f"{line[:most]}... ({len(line) - most:,} more characters)"
        for line in text.split("\n")
    )


def one_line(text: str, most: int | None = None) -> str:
    """Return text as it may stand within a sentence: shown on one line, and of at most `most` characters."""
    line = " ".join(text.split())
    return shown(line if most is None or len(line) <= most else f"{line[: most - 3]}...")


class EscapingStream:
    """A text stream that escapes what would control a terminal, except the carriage return before a progress bar."""

    def __init__(self, stream: TextIO):
        self.stream = stream

    def write(self, text: str) -> int:
        """Write text; return its length."""
        begin = "\r" if text.startswith("\r") and self.stream.isatty() else ""
        self.stream.write(begin + shown(text[len(begin) :]))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextmanager
def escaping() -> Iterator[None]:
    """Escape what is printed inside, on standard output and on standard error."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, EscapingStream(stream) if stream else stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def takes_colors() -> bool:
    """Whether standard output is a terminal that shows colors; the variable NO_COLOR turns them off."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_styled(parts: Iterable[tuple[str, str]]) -> None:
    """Print a line of texts, each with the numbers of its look in ANSI's sequences ("1;34"), or "" for none.

    What would control the terminal is escaped in the texts.
    """
    stream = sys.stdout.stream if isinstance(sys.stdout, EscapingStream) else sys.stdout
    line = "".join(f"\x1b[{look}m{shown(text)}\x1b[0m" if look else shown(text) for text, look in parts)
    stream.write(f"{line}\n")


def pass_data() -> None:
    """Leave standard output as it is, unless it is a terminal: a file or a program gets it, and it is data."""
    if isinstance(sys.stdout, EscapingStream) and not sys.stdout.isatty():
        sys.stdout = sys.stdout.stream


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Print the library's warnings as plain sentences, each once, without the source location that Python adds."""
    with warnings.catch_warnings():
        others, told = warnings.showwarning, set[str]()

        def show(message: Warning | str, category: type[Warning], filename: str, lineno: int, *rest: Any) -> None:
            if not issubclass(category, Remark):
                others(message, category, filename, lineno, *rest)
            elif str(message) not in told:
                told.add(str(message))
                print(f"note: {bounded(one_line(str(message)))}", file=sys.stderr)

        warnings.showwarning = show  # type: ignore[assignment]
        yield

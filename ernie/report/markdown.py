"""Text of others in Markdown: names of runs, files and columns, which may hold markup, HTML or lines of code."""

from __future__ import annotations

import re

_MARKUP = re.compile(r"([\\`*\[\]|])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def prose(text: str) -> str:
    """Return text that shows as it is: on one line, with markup and HTML escaped."""
    return _without_html(_MARKUP.sub(r"\\\1", text))


def cell(text: str) -> str:
    """Return text for a cell of a table: on one line, with HTML and the column mark escaped."""
    return _without_html(text.replace("|", "\\|"))


def _without_html(text: str) -> str:
    return "".join(_ENTITIES.get(letter, letter) for letter in " ".join(text.split()))


def code(text: str) -> str:
    """Return text as a code span, on one line, between more backticks than it has in a row."""
    line = " ".join(text.split())
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    space = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{space}{line}{space}{fence}"


def fenced(language: str, lines: str) -> str:
    """Return a block of code, between more backticks than it has in a row."""
    fence = "`" * max(3, 1 + max(map(len, re.findall("`+", lines)), default=0))
    return f"{fence}{language}\n{lines}\n{fence}"

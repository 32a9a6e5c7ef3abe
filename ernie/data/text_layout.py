"""What documents of text files and of rows have in common: line ends, escaped characters."""

from __future__ import annotations

import html
import re
from pathlib import PurePath

from ernie.data.compressed import uncompressed_name

_ENTITY = re.compile(r"&(?:#\d{1,9}|#[xX][0-9a-fA-F]{1,9}|[A-Za-z]\w*);")
_LINE_BREAKS = re.compile(r"\r\n?|[\n\x0b\x0c\x85\u2028\u2029]")
# What ends a line besides a line feed: old systems', separators of Unicode, and the end of a page.
_OTHER_BREAKS = re.compile("\r(?!\n)|[\x0b\x0c\x85\u2028\u2029]")


def broken_into_lines(text: str) -> str:
    """Return a text in which all line ends are line feeds; carriage returns before these stay."""
    return _OTHER_BREAKS.sub("\n", text.replace("\x0c\n", "\n")) if has_other_breaks(text) else text


def has_other_breaks(text: str) -> bool:
    """Whether something besides line feeds, and carriage returns before these, may end lines of a text."""
    if "\r" in text or "\x0b" in text or "\x0c" in text:
        return True
    return not text.isascii() and ("\x85" in text or "\u2028" in text or "\u2029" in text)


def unescaped(text: str) -> str:
    """Return a text with its HTML entities replaced by what they stand for; those of line ends become spaces."""
    if "&" not in text:
        return text
    return _ENTITY.sub(lambda entity: _LINE_BREAKS.sub(" ", html.unescape(entity.group())), text)


def is_wiki_name(file: str) -> bool:
    """Whether a file is called as WikiExtractor calls them: wiki_00, wiki_01, ..."""
    return re.fullmatch(r"wiki_\d+", PurePath(uncompressed_name(file)).name.lower()) is not None

"""Lines that were wrapped at a width, as in many books and mails, put together to paragraphs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from heapq import nlargest
from itertools import pairwise
from typing import Literal

from ernie.text.scripts import NO_SPACES

_NARROWEST, _WIDEST = 40, 132  # columns
_LEAST, _ENOUGH = 3, 8  # line breaks: with fewer than enough, no exception is allowed
_PROBED = 400  # lines of a document
_FULL, _FEWEST_FULL, _CONTINUED = 0.8, 0.6, 0.5  # fractions of the line breaks, see `wrap_width`
_NOT_LONGER = 0.98  # fraction of the lines: a few hold a word that is longer than the width
_RAGGED = 4  # columns by which a full line may fall short of the width
_MOST_OTHERS = 0.2  # fraction of the lines
_LEAST_WORDS = 3  # of a line
_LONGEST_WORD = 20  # columns; longer ones are addresses or the like
_PART = 0.6  # of the width: a shorter line ends a paragraph even within a sentence, as verse does

_OPENING = " \t([{\"'\u201c\u2018"
_WIDE = re.compile(f"[{NO_SPACES}]")  # characters that take two columns, and are written without spaces
_WIDE_RUN = re.compile(f"[{NO_SPACES}]+")
_ITEM = re.compile(r"\s*(?:[-*+\u2022]|\(?(?:\d{1,3}|[A-Za-z])[.)])\s")
_GAP = re.compile(r"[^\s.!?:;\"'\u201d\u2019)\]]\s{2,}\S")  # in a table; typists put two spaces after a full stop
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_BROKEN = re.compile(r"([^\W\d_]+)-\s*\Z")  # the part of a word that a hyphen breaks at the end of a line
_FIRST = re.compile(r"\s*([^\W\d_]+)")
_FINAL = re.compile(r"[.!?\u2026\u3002\uff01\uff1f:\uff1a][\"'\u201d\u2019\u300d\u300f)\]]*\s*\Z")


def unwrapped(lines: Sequence[str], mode: Literal["auto", True, False], width: int = 0) -> Sequence[str]:
    """Return the paragraphs of a document: its lines, those put together that were wrapped at a width.

    `width` is that of the file, for documents too short to show one; `mode` is as `wrapped` of ReadOptions.
    """
    if mode is False or len(lines) < 2:
        return lines
    if mode is True:
        return joined(lines, None)
    if sum(map(len, lines)) > _WIDEST * len(lines):  # a paragraph a line
        return lines
    own = wrap_width(lines[:_PROBED]) if len(lines) > _LEAST else 0
    if len(lines) > _ENOUGH:
        width = own
    return joined(lines, own or width) if own or width else lines


def wrap_width(lines: Sequence[str]) -> int:
    """Return the width in columns at which lines were wrapped, or 0 if they do not look so.

    In wrapped prose the first word of a line does not fit on the line before, and most lines begin within a sentence.
    Verse, lists, tables and texts with a paragraph a line lack one of the two.  Blank lines separate paragraphs.
    """
    written = list(filter(str.strip, lines))
    longer = len(written) - 1 - int(_NOT_LONGER * (len(written) - 1))
    # Most texts with a paragraph a line show that by their longest lines.
    if all(_columns(line) > _WIDEST for line in nlargest(longer + 1, written, key=len)):
        return 0
    breaks = [(line, after) for line, after in pairwise(lines) if line.strip() and after.strip()]
    if len(breaks) < _LEAST:
        return 0
    width = sorted(map(_columns, written))[-1 - longer]
    if not _NARROWEST <= width <= _WIDEST:
        return 0
    breaks = breaks if _is_full(*breaks[0], width) else breaks[1:]  # a title
    full = sum(_is_full(line, after, width) for line, after in breaks)
    # A short line that ends a sentence ends a paragraph.
    inside = sum(_is_full(line, after, width) or not _FINAL.search(line) for line, after in breaks)
    continued = sum(_is_continued(line, after) for line, after in breaks)
    no_prose = sum(_is_no_prose(line) for line, _ in breaks)
    exact = len(breaks) < _ENOUGH
    least_full, least_continued = (1.0, 0.75) if exact else (_FULL, _CONTINUED)
    looks_wrapped = full >= least_full * inside and full >= _FEWEST_FULL * len(breaks)
    looks_like_prose = continued >= least_continued * len(breaks) and no_prose <= _MOST_OTHERS * len(breaks)
    return width if breaks and looks_wrapped and looks_like_prose else 0


def joined(lines: Sequence[str], width: int | None) -> list[str]:
    """Return the paragraphs of lines that were wrapped at `width`; with None, all lines between blank ones are one.

    Blank lines stay.  A hyphen at the end of a line goes if the document has the word without it elsewhere, and not
    with it.
    """
    words = _words(lines) if any(map(_BROKEN.search, lines)) else frozenset()
    paragraphs: list[str] = []
    before = ""
    for line in lines:
        if before.strip() and line.strip() and (width is None or _belongs(before, line, width)):
            start = paragraphs[-1][:-1] if _is_broken(paragraphs[-1], line, words) else paragraphs[-1]
            paragraphs[-1] = start + _space(paragraphs[-1], line) + line.strip()
        else:
            paragraphs.append(line.rstrip() if line.strip() else line)
        before = line
    return paragraphs


def _belongs(line: str, after: str, width: int) -> bool:
    """Whether a line and the one after it are of one paragraph."""
    if _ITEM.match(after) or (_indent(after) > _indent(line) and not _ITEM.match(line)):
        return False
    return _is_full(line, after, width) or (_is_continued(line, after) and _columns(line) >= _PART * width)


def _is_full(line: str, after: str, width: int) -> bool:
    """Whether the first word of the next line would not have fitted."""
    word = 2 if _WIDE.match(after.lstrip()) else 1 + min(_LONGEST_WORD, _columns(after.split(None, 1)[0]))
    return _columns(line) + word > width - _RAGGED


def _is_continued(line: str, after: str) -> bool:
    """Whether the next line seems to begin within a sentence."""
    first = after.lstrip(_OPENING)[:1]
    return first.islower() or (_WIDE.match(first) is not None and not _FINAL.search(line))


def _is_no_prose(line: str) -> bool:
    """Whether a line is of a table, or has hardly a space, as addresses do."""
    return _GAP.search(line) is not None or (len(line.split()) < _LEAST_WORDS and not _WIDE.search(line))


def _words(lines: Sequence[str]) -> frozenset[str]:
    """Return the words of lines in small letters, also with hyphens inside, without those that a line breaks."""
    return frozenset(word.lower() for line in lines for word in _WORD.findall(_BROKEN.sub("", line)))


def _is_broken(line: str, after: str, words: frozenset[str]) -> bool:
    """Whether a line ends in the hyphen of a word that was broken, by the other words of the document."""
    first, second = _BROKEN.search(line), _FIRST.match(after)
    if not words or first is None or second is None:
        return False
    whole, hyphened = f"{first[1]}{second[1]}".lower(), f"{first[1]}-{second[1]}".lower()
    return whole in words and hyphened not in words


def _space(line: str, after: str) -> str:
    """Return what parts two lines once they are joined: nothing after a hyphen, and where no spaces are written."""
    spaceless = _WIDE.match(line[-1:]) is not None or _WIDE.match(after.lstrip()[:1]) is not None
    return "" if spaceless or (line.endswith("-") and line[-2:-1].strip()) else " "


def _columns(line: str) -> int:
    line = line.rstrip()
    return len(line) if line.isascii() else len(line) + sum(map(len, _WIDE_RUN.findall(line)))


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())

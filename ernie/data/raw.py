"""A document as it was read, before any tokenizer has seen it; and what could not be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from ernie.text.segment.base import Kind
from ernie.text.whole import printable

SPAN_KINDS = tuple(kind.name.lower() for kind in Kind)  # the names of spans in a file
_OBJECT = 256  # characters' worth of memory that a document takes besides its text


class Place(NamedTuple):
    """Where a document was read: a file (or data set) and the line (or row) it begins at, counted from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return printable(f"{self.file}:{self.line}")  # a file's name need not be UTF-8


class RawDocument(NamedTuple):
    """The text of one document, with a paragraph a line.

    `headings` are the numbers of the lines that are headings.  `spans` (k, 3) marks words, phrases and entities of
    pre-annotated text: first character, past-last character (of `text`) and kind.  `annotated` are the kinds that
    the annotation decides; the segmenters mark the others.
    """

    place: Place
    text: str
    title: str = ""
    headings: frozenset[int] = frozenset()
    spans: np.ndarray | None = None
    annotated: tuple[Kind, ...] = ()

    @property
    def size(self) -> int:
        """About how many characters' worth of memory it takes: even one without text takes some."""
        return _OBJECT + len(self.text) + len(self.title)


class Dropped(NamedTuple):
    """A document that could not be read: `reason` for counting, `detail` for a person."""

    place: Place
    reason: str
    detail: str

    @property
    def size(self) -> int:
        """As of a RawDocument."""
        return _OBJECT + len(self.detail)


@dataclass(frozen=True)
class Fields:
    """The names of the fields (or columns) that hold a document in JSON lines, Parquet and data sets.

    A row has `text` (a string with a paragraph a line) or `paragraphs` (a list of strings); the rest is optional.
    `headings` are the numbers of the paragraphs that are headings, from 0.  `spans` mark words, phrases and
    entities: each is [start, end, kind], or {start, end, kind}, with kind "word", "phrase" or "entity", in characters
    of the text; of paragraphs, in characters of the paragraphs joined by a line break each.
    """

    text: str = "text"
    paragraphs: str = "paragraphs"
    title: str = "title"
    headings: str = "headings"
    spans: str = "spans"


@dataclass(frozen=True)
class ReadOptions:
    """How files are read.

    `format` of text files: as their first lines are ("auto"), "tagged" if they are of `word/POS` tokens whatever those
    look like, "plain" if they are to be taken as they stand.  `titles`: take a short first paragraph without a full
    stop for the title of a plain text document.  `strict`: stop at the first document that cannot be read instead of
    dropping it.
    """

    format: Literal["auto", "tagged", "plain"] = "auto"
    titles: bool = True
    strict: bool = False
    fields: Fields = field(default_factory=Fields)

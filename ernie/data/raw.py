"""Documents as read, before tokenization, and documents that could not be read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from ernie.errors import UserError
from ernie.text.segment.base import Kind
from ernie.text.surrogates import printable

SPAN_KINDS = tuple(kind.name.lower() for kind in Kind)  # the names of span kinds in files
_OVERHEAD = 256  # memory of a document besides its text, in characters


class Place(NamedTuple):
    """The source of a document: a file (or data set) and the line (or row) it begins at, counted from 1.

    An item from Python instead of a file has no name, and its number counts from 0.
    """

    file: str
    line: int

    def __str__(self) -> str:
        if not self.file:
            return f"row {self.line}"
        return printable(f"{self.file}:{self.line}")  # a file's name need not be UTF-8


class RawDocument(NamedTuple):
    """The text of one document, one paragraph per line.

    `headings` are the numbers of the lines that are headings.  `spans` (k, 3) marks words, phrases and entities of
    pre-annotated text: first character, past-last character (of `text`) and kind.  `annotated` are the kinds covered
    by the annotation; segmenters mark the others.  `unwrapped` is the number of lines that were put together with the
    line before.  `url` is the address of the page that it was, if that is known.
    """

    place: Place
    text: str
    title: str = ""
    headings: frozenset[int] = frozenset()
    spans: np.ndarray | None = None
    annotated: tuple[Kind, ...] = ()
    unwrapped: int = 0
    url: str = ""

    @property
    def size(self) -> int:
        """The approximate memory use, in characters, including the overhead of an empty document."""
        return _OVERHEAD + len(self.text) + len(self.title)


DAMAGED = "rest of a damaged file"  # the reason why such a rest is dropped


class Dropped(NamedTuple):
    """A document that could not be read: `reason` is a short key for counting, `detail` a message for the user.

    `by_kind` marks what is left out for what it is, and not for a fault, such as the redirects of a wiki.
    """

    place: Place
    reason: str
    detail: str
    by_kind: bool = False

    @property
    def size(self) -> int:
        """As for RawDocument."""
        return _OVERHEAD + len(self.detail)


class Unparsed(NamedTuple):
    """A document that is yet to be parsed, which takes long: `parse` does it, in any process.

    `length` is that of what is parsed.
    """

    place: Place
    length: int
    parse: Callable[[], RawDocument | Dropped]

    @property
    def size(self) -> int:
        """As for RawDocument."""
        return _OVERHEAD + self.length


FormatName = Literal[
    "auto", "tagged", "plain", "jsonl", "json", "csv", "tsv", "parquet", "arrow", "warc", "mediawiki", "html"
]


@dataclass(frozen=True)
class Fields:
    """The names of the fields (or columns) that hold a document in JSON lines, Parquet and data sets.

    A row has `text` (a string with one paragraph per line) or `paragraphs` (a list of strings); the rest is optional.
    `headings` are the numbers of the paragraphs that are headings, from 0.  `spans` mark words, phrases and entities:
    each is [start, end, kind] or {start, end, kind}, with kind "word", "phrase" or "entity".  They count characters of
    the text, or of the paragraphs joined by line breaks.  A name with full stops also leads into an object in the row:
    meta.text.
    """

    text: str = "text"
    paragraphs: str = "paragraphs"
    title: str = "title"
    headings: str = "headings"
    spans: str = "spans"
    url: str = "url"


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading files.

    `format` is that of the files: "auto" goes by their names and, of text files, their first lines.  "tagged" reads
    `word/POS` tokens in text files regardless of how those look, and "plain" reads these as they are.  The others are
    read in all files, whatever their names (see ernie.data.formats).  `titles`: take a short first paragraph without a
    full stop as the title of a plain text document, and the title of a web page.  `wrapped`: join lines that were
    wrapped at a width into paragraphs, where a document looks wrapped ("auto"), always, or never.  `delimiter`: the
    character between the values of .csv and .tsv files, such as ";"; by default a comma and a tab.  `strict`: stop at
    the first document that cannot be read instead of dropping it.  `damaged`: "stop" at a file that breaks off or is
    damaged, or "drop" the rest of it.
    """

    format: FormatName = "auto"
    titles: bool = True
    wrapped: Literal["auto", True, False] = "auto"
    strict: bool = False
    damaged: Literal["stop", "drop"] = "stop"
    delimiter: str = ""
    fields: Fields = field(default_factory=Fields)

    def __post_init__(self) -> None:
        if len(self.delimiter) > 1 or self.delimiter in ('"', "\n", "\r"):
            raise UserError(f"delimiter: expected one character, such as ';', found '{self.delimiter}'")

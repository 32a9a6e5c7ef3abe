"""Texts to search in: files and folders become documents, and long documents passages that overlap."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from ernie.data.compressed import uncompressed_name
from ernie.data.find import Finder
from ernie.data.labeled.read import read_rows
from ernie.data.labeled.row import Row, RowOptions, is_empty
from ernie.data.raw import Place
from ernie.data.read_lines import LineFile
from ernie.errors import UserError, nearest
from ernie.text.blank import is_blank
from inference.rows import usable_rows

_TEXTS, _ROWS = (".txt", ".md"), (".jsonl", ".json", ".csv", ".tsv", ".parquet")
_IDS = ("_id", "id")  # columns that are taken for an id without being named
_SENTENCE_END = re.compile(r"[。！？；]|[.!?…][\"'”’)\]]*\s|\n")
Spans = Callable[[str], np.ndarray]  # the first and the past-last character (n, 2) of each token of a text


class Document(NamedTuple):
    """A text to search in, its id, and perhaps a title.

    A text with `lines` is a file, whose lines are counted from that of its place; any other stands in one row, of which
    `cells` are kept.
    """

    text: str
    place: Place
    id: str
    title: str = ""
    lines: bool = False
    cells: Mapping[str, Any] = {}


class Passage(NamedTuple):
    """A part of a document that is found as a whole, with the file and the line where it begins.

    `cells` are those of its row that were kept.
    """

    text: str
    title: str
    id: str
    file: str
    line: int
    cells: Mapping[str, Any] = {}

    @property
    def searched(self) -> str:
        """The text by which the passage is found: its title comes first."""
        return f"{self.title} {self.text}" if self.title else self.text


@dataclass(frozen=True)
class Reading:
    """How files become documents.

    A row has its text in the columns `text`, which are put together, its title in `title`, and its id in `id`; "" means
    the column `_id` or `id`, if there is one.  A file of plain text is one document or, with `lines`, one a line.
    Cells of the columns `keep` are given back with a passage, but not searched.  With `faulty: skip` rows that cannot
    be read are left out and counted.
    """

    text: tuple[str, ...] = ("text",)
    title: str = "title"
    id: str = ""
    lines: bool = False
    keep: tuple[str, ...] = ()
    faulty: Literal["stop", "skip"] = "stop"

    def documents(self, sources: Sequence[str]) -> Iterator[Document]:
        """Yield the documents of files and of folders with such files; blank ones are left out.

        Raises UserError for a source that is not there, a folder without such files, and a row without the columns.
        """
        options = RowOptions(faulty=self.faulty)
        for source in sources:
            for file in _files(source):
                if _ending(file) in _TEXTS and not self.lines:
                    document = _whole(Path(file))
                    found = iter([] if document is None else [document])
                else:
                    rows = replace(options, format="text") if _ending(file) in _TEXTS else options
                    found = map(self.document, usable_rows(read_rows(file, rows), rows, self.document))
                yield from (document for document in found if not is_blank(document.text))

    def document(self, row: Row) -> Document:
        """Return the document of a row.  Raises UserError if it lacks a column."""
        texts = [row.text(column) for column in self.text if not is_empty(row.cell(column))]
        column = self.id or next((name for name in _IDS if name in row), "")
        own = row.text(column) if column else str(row.place)
        title = row.get(self.title) if self.title not in self.text else None
        shown = "" if is_empty(title) else row.text(self.title)
        return Document(" ".join(texts), row.place, own, shown, cells={name: row.cell(name) for name in self.keep})


def _ending(file: str) -> str:
    return Path(uncompressed_name(Path(file).name)).suffix.lower()


def _files(source: str) -> list[str]:
    """Return the files of a source.  Raises UserError for a folder without files that can be read."""
    folder = Path(source)
    if not folder.is_dir():
        if folder.is_file() and _ending(source) not in (*_TEXTS, *_ROWS):
            raise UserError(
                f"{source}: expected a name that ends in {', '.join((*_TEXTS, *_ROWS))}; rename a copy of it"
            )
        return [source]
    finder = Finder(source)
    files = finder.once(finder.files(folder))
    known = [str(file) for file in files if _ending(str(file)) in (*_TEXTS, *_ROWS)]
    for file in files:
        if str(file) not in known:
            finder.leave_out(file, f"is of no format that is read: {', '.join((*_TEXTS, *_ROWS))}")
    finder.note_unread()
    if not known:
        raise UserError(f"{source}: holds no file that ends in {', '.join((*_TEXTS, *_ROWS))}")
    return known


def _whole(file: Path) -> Document | None:
    """Return a file of text as one document, None if it is empty.  Raises UserError for a line that is no text."""
    if not file.is_file():
        raise UserError(f"{file}: there is no such file.{nearest(file.name, _names_beside(file))}")
    lines = list[str]()
    for line in LineFile(file):
        if line.text is None:
            raise UserError(f"{file}:{line.number}: {line.problem}")
        lines.append(line.text)
    return Document("\n".join(lines), Place(str(file), 1), str(file), lines=True) if lines else None


def _names_beside(file: Path) -> list[str]:
    return [each.name for each in file.parent.iterdir()] if file.parent.is_dir() else []


def passages(document: Document, spans: Spans, length: int, overlap: int) -> Iterator[Passage]:
    """Cut a document into passages of at most `length` tokens, `overlap` of which are those before.

    A passage ends at the end of a sentence where there is one in its second half.  The title of a document counts
    towards the length, up to half of it, and belongs to each of its passages.
    """
    text, found = document.text, spans(document.text)
    size = length - min(len(spans(document.title)), length // 2) if document.title else length
    begin, count = 0, len(found)
    line, counted = document.place.line, 0
    while True:
        end = min(begin + size, count)
        if end < count:
            halves = range(end, begin + size // 2, -1)
            end = next((i for i in halves if _ends(text, found, i)), end)
        first = int(found[begin, 0]) if begin else 0
        part = text[first : int(found[end, 0]) if end < count else len(text)]
        if document.lines:
            visible = first + len(part) - len(part.lstrip())
            line, counted = line + text.count("\n", counted, visible), visible
        yield Passage(part.strip(), document.title, document.id, document.place.file, line, document.cells)
        if end >= count:
            return
        later = range(max(end - min(overlap, size // 2), begin + 1), end)
        begin = next((i for i in later if _ends(text, found, i)), later.start)


def _ends(text: str, spans: np.ndarray, token: int) -> bool:
    """Whether a sentence ends before a token."""
    return _SENTENCE_END.search(text, int(spans[token - 1, 0]), int(spans[token, 0])) is not None

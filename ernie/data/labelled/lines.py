"""Rows of text files: separated values, JSON lines, columns of words, plain lines."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, dropwhile, islice

from ernie.data.labelled.row import Fault, Row, RowOptions
from ernie.data.raw import Place
from ernie.data.read_lines import Line
from ernie.errors import UserError, nearest
from ernie.report.words import plural

csv.field_size_limit(1 << 24)
_MARKS = {"\t": "a tab", ";": "';'", ",": "','"}  # that may stand between columns


def read_separated(file: str, lines: Iterable[Line], options: RowOptions, comma: bool) -> Iterator[Row | Fault]:
    """Rows of a .csv (`comma`) or .tsv file, whose first line names the columns unless `options.columns` does.

    Where that line has no comma, or no tab, what stands between its names in their place is known by it.  Raises
    UserError when the file has no line of names or one that cannot be read.
    """
    lines = iter(lines)
    first = list(islice(lines, 1))
    names = first[0].text or "" if first and not options.columns else ""
    if "\r" in names:  # it is the whole file
        raise UserError(
            f"{file}:1: lines end with a carriage return alone, as on old Macs; save the file with other line breaks, "
            "or change them: tr '\\r' '\\n' < FILE"
        )
    delimiter = options.delimiter or _delimiter(names, "," if comma else "\t")
    quote = options.quote if options.quote is not None else ('"' if comma or delimiter != "\t" else "")
    lines = chain(first, lines)
    columns = list(options.columns)
    for place, cells in _cells(file, lines, delimiter, quote):
        if isinstance(cells, str):
            if not columns:
                raise UserError(f"{place}: {cells}; it should name the columns")
            yield Fault(place, cells)
        elif cells == [""] and len(columns) != 1:
            continue  # between rows; where there is one column, an empty line is a row
        elif not columns:
            columns = _header(place, cells, options)
        elif place.line == 1 and options.columns and (named := _named(cells, columns)):
            yield Fault(place, named)
        elif len(cells) < len(columns) or (len(cells) > len(columns) and not options.columns):
            mark = _delimiter(cells[0], "") if len(cells) == 1 else ""
            hint = f"; if {_MARKS[mark]} stands between them, say so with 'delimiter'" if mark else ""
            yield Fault(place, f"has {plural(len(cells), 'cell')}, expected {len(columns)}: {', '.join(columns)}{hint}")
        else:
            yield Row(dict(zip(columns, cells, strict=False)), place)


def _delimiter(names: str, usual: str) -> str:
    """What stands between the names of columns: the usual mark unless there is none but another."""
    return next((mark for mark in (usual, *_MARKS) if mark and mark in names), usual)


def _cells(file: str, lines: Iterable[Line], delimiter: str, quote: str) -> Iterator[tuple[Place, list[str] | str]]:
    """The cells of each line, an empty one for an empty line, or what is wrong with it."""
    if not quote:
        for line in lines:
            yield Place(file, line.number), line.problem if line.text is None else line.text.split(delimiter)
        return
    problems: list[tuple[Place, str]] = []

    def readable() -> Iterator[str]:
        for line in lines:
            if line.text is None:
                problems.append((Place(file, line.number), line.problem))
            yield (line.text or "") + "\n"

    reader = csv.reader(readable(), delimiter=delimiter, quotechar=quote, strict=True)
    begins = 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise UserError(
                f"{file}:{begins}: the quoting does not close, or is otherwise wrong ({error}); files without quoting "
                "need 'quote: \"\"'"
            ) from None
        yield from problems
        if cells is None:
            return
        if not problems:  # else the line that cannot be read is missing in these cells
            yield Place(file, begins), cells or [""]
        problems.clear()
        begins = reader.line_num + 1


def _named(cells: Sequence[str], columns: Sequence[str]) -> str:
    """What is wrong with a first line that seems to name the columns though `columns` does; else nothing."""
    names = [name.strip().lower() for name in cells[: len(columns)]]
    alike = [column for name, column in zip(names, columns, strict=False) if name == column.lower()]
    if list(cells[: len(columns)]) == list(columns):
        return "this line names the columns as `columns` does; leave `columns` out"
    if not alike:
        return ""
    return (
        f"this line seems to name the columns, for the cell in the column '{alike[0]}' says just that; leave `columns` "
        "out, and say with `rename` what a column is to be called. If it is a row, give the column another name"
    )


def _header(place: Place, names: list[str], options: RowOptions) -> list[str]:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(f"{place}: the column '{twice[0]}' stands twice; name all with 'columns'")
    for there in options.rename.values():
        if there not in names:
            raise UserError(
                f"{place}: there is no column '{there}'.{nearest(there, names)} A file without a line of names "
                "needs 'columns'."
            )
    return names


def read_json_rows(file: str, lines: Iterable[Line]) -> Iterator[Row | Fault]:
    """A row a line."""
    for line in lines:
        place = Place(file, line.number)
        if line.text is None:
            yield Fault(place, line.problem)
        elif line.text.strip():
            yield as_row(line.text, place)


def as_row(text: str, place: Place) -> Row | Fault:
    """The row that a line of JSON holds."""
    try:
        cells = json.loads(text)
    except (ValueError, RecursionError) as error:  # of a number with thousands of digits no JSONDecodeError
        return Fault(place, f"is not JSON: {error}")
    if not isinstance(cells, dict):
        return Fault(place, "expected a JSON object with named values")
    return Row(cells, place)


def read_columns(file: str, lines: Iterable[Line], options: RowOptions) -> Iterator[Row | Fault]:
    """Sentences of a CoNLL file: a word a line with its tags, an empty line behind a sentence.

    A row has a list under each of `columns` ("token" and "tag" unless named): the first columns of the file, and the
    last under the last name; spaces and tabs stand between them.  Lines that begin with -DOCSTART- stand between
    documents and are no words, nor are comments, which begin with # and stand before a sentence.  A sentence with a
    line that cannot be read is a fault as a whole.
    """
    names = options.columns or ("token", "tag")
    word = None
    for sentence in _sentences(lines):
        word = next((line for line in sentence if line.text is None or not line.text.startswith("#")), word)
        words = list(dropwhile(partial(_is_comment, word, options.delimiter), sentence))
        if words:
            yield _sentence(file, names, words, options.delimiter)


def _sentences(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """The lines between those that stand between sentences."""
    sentence: list[Line] = []
    for line in lines:
        between = line.text is not None and (not line.text.strip(" \t") or line.text.startswith("-DOCSTART-"))
        if not between:
            sentence.append(line)
        elif sentence:
            yield sentence
            sentence = []
    if sentence:
        yield sentence


def _is_comment(word: Line | None, delimiter: str, line: Line) -> bool:
    """Whether a line at the beginning of a sentence is none of its words, which # may be: it has other columns."""
    if line.text is None or not line.text.startswith("#"):
        return False
    if word is None or word.text is None:
        return word is None and "\t" not in line.text
    tabbed = "\t" in word.text and "\t" not in line.text
    return tabbed or len(_columns(line.text, delimiter)) != len(_columns(word.text, delimiter))


def _columns(text: str, delimiter: str) -> list[str]:
    # Not at any white space: words of Chinese data may be a wide space.
    return text.split(delimiter) if delimiter else re.split("[ \t]+", text.strip(" \t"))


def _sentence(file: str, names: Sequence[str], lines: Sequence[Line], delimiter: str) -> Row | Fault:
    found: list[list[str]] = []
    for line in lines:
        if line.text is None:
            return Fault(Place(file, line.number), line.problem)
        cells = _columns(line.text, delimiter)
        if len(cells) < len(names):
            return Fault(Place(file, line.number), f"has {len(cells)} columns, expected {len(names)}")
        found.append([*cells[: len(names) - 1], cells[-1]])
    columns = zip(names, zip(*found, strict=True), strict=True)
    return Row({name: list(column) for name, column in columns}, Place(file, lines[0].number))


def read_plain(file: str, lines: Iterable[Line]) -> Iterator[Row | Fault]:
    """A row a line, with the column "text"."""
    for line in lines:
        place = Place(file, line.number)
        yield Fault(place, line.problem) if line.text is None else Row({"text": line.text}, place)

"""Rows of text files: separated values, JSON lines, CoNLL columns, plain lines."""

from __future__ import annotations

import csv
import json
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, dropwhile, islice
from typing import Any

from ernie.data.labeled.row import Fault, Row, RowOptions
from ernie.data.raw import Place
from ernie.data.read_lines import Line
from ernie.errors import Remark, UserError, nearest
from ernie.formatting import plural

csv.field_size_limit(1 << 24)
_MOST_COLUMNS = 100_000  # more would take gigabytes: each cell is an object
_MOST_NESTED = 100  # lists and objects inside one another in a row of JSON
_SHOWN = 20  # columns listed in a message
_A_LIST = "begins a list; rows that stand in one list are read from a .json file, or with format: json"
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_DELIMITERS = {"\t": "a tab", ";": "';'", ",": "','", "|": "'|'"}  # that are detected, with their names in messages


def read_separated(file: str, lines: Iterable[Line], options: RowOptions, comma: bool) -> Iterator[Row | Fault]:
    """Yield the rows of a .csv (`comma`) or .tsv file; its first line is a header unless `options.columns` is given.

    If the header lacks the usual comma or tab, the delimiter is detected from it.  Raises UserError for an invalid
    header and for quotes that do not close.
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
    if options.quote is None and not quote:
        lines = _noting_quotes(file, lines, delimiter)
    columns = list(options.columns)
    for place, cells in _cells(file, lines, delimiter, quote, options.escape):
        if isinstance(cells, str):
            if not columns:
                raise UserError(f"{place}: {cells}; it should name the columns")
            yield Fault(place, cells)
        elif cells == [""] and len(columns) != 1:
            continue  # between rows; where there is one column, an empty line is a row
        elif not columns:
            columns = _header(place, cells, options)
        elif place.line == 1 and options.columns and (problem := _header_problem(cells, columns)):
            yield Fault(place, problem)
        elif len(columns) > 1 and _are_names(cells, columns):
            yield Fault(
                place, "this line names the columns again, as the first line of another file would; take it out"
            )
        elif len(cells) < len(columns) or (len(cells) > len(columns) and not options.columns):
            other = _delimiter(cells[0], "") if len(cells) == 1 else ""
            hint = f"; if they are separated by {_DELIMITERS[other]}, set 'delimiter'" if other else ""
            found = f"has {plural(len(cells), 'cell')}, expected {len(columns)}"
            yield Fault(place, f"{found}: {_listed(columns)}{hint}")
        else:
            yield Row(dict(zip(columns, cells, strict=False)), place)


def _are_names(cells: Sequence[str], columns: Sequence[str]) -> bool:
    """Whether the cells of a line are the names of the columns, whatever the case and the spaces around them."""
    return len(cells) == len(columns) and all(
        cell.strip().lower() == name.strip().lower() for cell, name in zip(cells, columns, strict=True)
    )


def _delimiter(names: str, usual: str) -> str:
    """Detect the delimiter of a header line: the usual one if it occurs or no other does, else another that occurs."""
    return next((mark for mark in (usual, *_DELIMITERS) if mark and mark in names), usual)


def _listed(columns: Sequence[str]) -> str:
    more = len(columns) - _SHOWN
    return ", ".join(columns[:_SHOWN]) + (f" and {more:,} more" if more > 0 else "")


def _cells(
    file: str, lines: Iterable[Line], delimiter: str, quote: str, escape: str
) -> Iterator[tuple[Place, list[str] | str]]:
    """Yield the cells of each line, [""] for an empty one, or what is wrong with it."""
    lines = (_not_too_wide(line, delimiter) for line in lines)
    if quote:
        yield from _quoted_cells(file, lines, delimiter, quote, escape)
        return
    for line in lines:
        yield Place(file, line.number), line.problem if line.text is None else line.text.split(delimiter)


def _noting_quotes(file: str, lines: Iterable[Line], delimiter: str) -> Iterator[Line]:
    """Yield the lines, and warn at the end of cells in quotes, with doubled ones inside, that are read as they are."""
    count, first = 0, 0
    for line in lines:
        if line.text is not None and '""' in line.text:
            cells = line.text.split(delimiter)
            found = sum('""' in cell[1:-1] and _QUOTED.fullmatch(cell) is not None for cell in cells)
            first = first or (line.number if found else 0)
            count += found
        yield line
    if count:
        warnings.warn(
            f"{file}: {plural(count, 'cell')} in quotes with doubled quotes inside, the first on line {first}, as "
            "tables write cells that have quotes; they are read as they are, and quote: '\"' reads them as cells",
            Remark,
            stacklevel=2,
        )


def _not_too_wide(line: Line, delimiter: str) -> Line:
    if line.text is None or line.text.count(delimiter) < _MOST_COLUMNS:
        return line
    return Line(line.number, None, "too many cells", f"has more than {_MOST_COLUMNS:,} cells")


def _quoted_cells(
    file: str, lines: Iterable[Line], delimiter: str, quote: str, escape: str
) -> Iterator[tuple[Place, list[str] | str]]:
    problems: list[tuple[Place, str]] = []
    long: list[tuple[int, int]] = []  # the first and the last line of each row of several
    escaped = 0  # the first line with a backslash before a quote

    def readable() -> Iterator[str]:
        nonlocal escaped
        for line in lines:
            if line.text is None:
                problems.append((Place(file, line.number), line.problem))
            elif not escaped and not escape and f"\\{quote}" in line.text:
                escaped = line.number
            yield (line.text or "") + "\n"

    reader = csv.reader(readable(), delimiter=delimiter, quotechar=quote, escapechar=escape or None, strict=True)
    begins = 1
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            advice = (
                f"line {escaped} has a backslash before a quote: if that is how quotes within cells are written, "
                "set escape: '\\'"
                if escaped
                else "files without quoting need 'quote: \"\"'"
            )
            raise UserError(
                f"{file}:{begins}: the quoting does not close, or is otherwise wrong ({error}); {advice}"
            ) from None
        yield from problems
        if cells is None:
            break
        if not problems:  # otherwise these cells lack an unreadable line
            yield Place(file, begins), cells or [""]
        problems.clear()
        if reader.line_num > begins:
            long.append((begins, reader.line_num))
        begins = reader.line_num + 1
    if long:
        begins, ends = max(long, key=lambda lines: lines[1] - lines[0])
        warnings.warn(
            f"{file}: {plural(len(long), 'row')} of several lines, the longest from line {begins} to {ends}; if that "
            "is not intended, a quote is out of place: 'quote: \"\"' reads each line as a row",
            Remark,
            stacklevel=2,
        )


def _header_problem(cells: Sequence[str], columns: Sequence[str]) -> str:
    """Return a message if the first line seems to be a header although `columns` is given, else ""."""
    names = [name.strip().lower() for name in cells[: len(columns)]]
    same = [column for name, column in zip(names, columns, strict=False) if name == column.lower()]
    if list(cells[: len(columns)]) == list(columns):
        return "this line names the columns as `columns` does; leave `columns` out"
    if not same:
        return ""
    return (
        f"this line looks like a header: its cell in the column '{same[0]}' is the column's name; leave `columns` out, "
        "and use `rename` to give columns other names. If the line is a row, give the column another name"
    )


def _header(place: Place, names: list[str], options: RowOptions) -> list[str]:
    duplicates = sorted(name for name, count in Counter(names).items() if count > 1)
    if duplicates:
        raise UserError(f"{place}: the column '{duplicates[0]}' appears twice; rename one in the file")
    for name in options.rename.values():
        if name not in names:
            raise UserError(
                f"{place}: there is no column '{name}'.{nearest(name, names)} A file without a line of names "
                "needs 'columns'."
            )
    return names


def read_json_rows(file: str, lines: Iterable[Line]) -> Iterator[Row | Fault]:
    """Yield one row per line of JSON."""
    for line in lines:
        place = Place(file, line.number)
        if line.text is None:
            yield Fault(place, line.problem)
        elif line.text.strip():
            yield as_row(line.text, place)


def as_row(text: str, place: Place) -> Row | Fault:
    """Parse a line of JSON into a row."""
    try:
        cells = json.loads(text, object_pairs_hook=_named_once)
    except UserError as error:
        return Fault(place, str(error))
    except (ValueError, RecursionError) as error:  # huge numbers raise ValueError, not JSONDecodeError
        return Fault(place, _A_LIST if text.strip() == "[" else f"is not JSON: {error}")
    if not isinstance(cells, dict):
        rows = isinstance(cells, list) and cells and isinstance(cells[0], dict)
        return Fault(place, _A_LIST if rows else "expected a JSON object with named values")
    return checked_row(cells, place) if text.count("[") + text.count("{") > _MOST_NESTED else Row(cells, place)


def _named_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object.  Raises UserError if it has a name twice, since only one of the values would be kept."""
    cells = dict(pairs)
    if len(cells) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise UserError(f"the name '{twice}' stands twice in an object")
    return cells


def checked_row(cells: dict[str, Any], place: Place) -> Row | Fault:
    """Return a row of JSON, or a Fault if it is nested so deeply that it could not be written again."""
    if _depth(cells) > _MOST_NESTED:
        return Fault(place, f"has more than {_MOST_NESTED} lists and objects inside one another")
    return Row(cells, place)


def _depth(cells: object) -> int:
    """Return how many lists and objects stand inside one another."""
    depth, level = 0, [cells]
    while level:
        depth += 1
        level = [part for item in level for part in _parts(item) if isinstance(part, (dict, list))]
    return depth


def _parts(item: object) -> Iterable[object]:
    return item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()


def read_columns(file: str, lines: Iterable[Line], options: RowOptions) -> Iterator[Row | Fault]:
    """Yield one row per sentence of a CoNLL file: one word with its tags per line, an empty line after each sentence.

    A row has a list for each of `columns` (default "token" and "tag"): the first columns of the file, and for the last
    name its last column.  Columns are separated by spaces or tabs unless `delimiter` is given.  Lines that begin with
    -DOCSTART- separate documents; comment lines before a sentence begin with #.  A sentence with an unreadable line is
    a Fault as a whole.
    """
    names = options.columns or ("token", "tag")
    word = None
    for sentence in _sentences(lines):
        word = next((line for line in sentence if line.text is None or not line.text.startswith("#")), word)
        words = list(dropwhile(partial(_is_comment, word, options.delimiter), sentence))
        if words:
            yield _sentence(file, names, words, options.delimiter)


def _sentences(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Group lines into sentences, dropping the lines that separate them."""
    sentence: list[Line] = []
    for line in lines:
        separates = line.text is not None and (not line.text.strip(" \t") or line.text.startswith("-DOCSTART-"))
        if not separates:
            sentence.append(line)
        elif sentence:
            yield sentence
            sentence = []
    if sentence:
        yield sentence


def _is_comment(word: Line | None, delimiter: str, line: Line) -> bool:
    """Whether a line at the start of a sentence is a comment: it begins with # and has other columns than `word`."""
    if line.text is None or not line.text.startswith("#"):
        return False
    if word is None or word.text is None:
        return word is None and "\t" not in line.text
    tabbed = "\t" in word.text and "\t" not in line.text
    return tabbed or len(_columns(line.text, delimiter)) != len(_columns(word.text, delimiter))


def _columns(text: str, delimiter: str) -> list[str]:
    # Not at all white space: a word of Chinese data may be an ideographic space.
    return text.split(delimiter) if delimiter else re.split("[ \t]+", text.strip(" \t"))


def _sentence(file: str, names: Sequence[str], lines: Sequence[Line], delimiter: str) -> Row | Fault:
    rows: list[list[str]] = []
    for line in lines:
        if line.text is None:
            return Fault(Place(file, line.number), line.problem)
        cells = _columns(line.text, delimiter)
        if len(cells) < len(names):
            found = f"has {plural(len(cells), 'column')}, expected {len(names)}"
            return Fault(Place(file, line.number), f"{found}: {', '.join(names)}; `columns` names those that are there")
        rows.append([*cells[: len(names) - 1], cells[-1]])
    columns = zip(names, zip(*rows, strict=True), strict=True)
    return Row({name: list(column) for name, column in columns}, Place(file, lines[0].number))


def read_plain(file: str, lines: Iterable[Line]) -> Iterator[Row | Fault]:
    """Yield one row per line, with the column "text"."""
    for line in lines:
        place = Place(file, line.number)
        yield Fault(place, line.problem) if line.text is None else Row({"text": line.text}, place)

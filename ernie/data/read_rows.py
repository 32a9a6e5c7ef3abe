"""Documents from rows with named fields: of JSON, separated values, Parquet, Arrow, and the `datasets` library."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from types import NoneType
from typing import Any, Literal

import numpy as np

from ernie.data.parquet import arrow_rows, load_saved, parquet_rows, saved_rows
from ernie.data.raw import SPAN_KINDS, Dropped, Fields, Place, RawDocument, ReadOptions
from ernie.data.reach import offline_unless_reachable
from ernie.data.read_lines import MAX_LINE, NOT_UTF8, Line, LineFile
from ernie.data.text_layout import broken_into_lines, is_wiki_name, unescaped
from ernie.data.wrapped import unwrapped
from ernie.errors import DamagedFile, UserError, nearest
from ernie.formatting import plural
from ernie.text.segment.base import Kind
from ernie.text.surrogates import LONE_SURROGATE, is_encodable, printable

_SHOWN = 20  # keys
_KINDS = {
    NoneType: "nothing (null)",
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    list: "an empty list",
}


def read_parquet(name: str, file: LineFile, options: ReadOptions) -> Iterator[RawDocument | Dropped]:
    """Yield one document per row of a Parquet file, reading in bounded memory.

    Raises UserError when the file is damaged or has no column for the text.
    """
    return _read_columns(name, file, options, parquet_rows)


def read_arrow(name: str, file: LineFile, options: ReadOptions) -> Iterator[RawDocument | Dropped]:
    """As `read_parquet`, of an Arrow file or stream, a batch at a time."""
    return _read_columns(name, file, options, arrow_rows)


def _read_columns(
    name: str, file: LineFile, options: ReadOptions, read: Callable[..., Iterator[dict[str, Any] | str]]
) -> Iterator[RawDocument | Dropped]:
    rows = read(file.path, lambda names: _columns(name, names, options.fields), file.note)
    for number, row in enumerate(rows, 1):
        place = Place(name, number)
        yield Dropped(place, NOT_UTF8, row) if isinstance(row, str) else document_of(row, place, options)


def read_csv(name: str, lines: LineFile, options: ReadOptions) -> Iterator[RawDocument | Dropped]:
    """Yield one document per row of comma-separated values; cells in quotes may have several lines.

    The first line names the columns.  Raises UserError when no column holds the text and for quotes that do not close.
    """
    return _read_separated(name, lines, options, options.delimiter or ",", csv.QUOTE_MINIMAL)


def read_tsv(name: str, lines: LineFile, options: ReadOptions) -> Iterator[RawDocument | Dropped]:
    """As `read_csv`, of values between tabs, where a quote is a character as any other."""
    return _read_separated(name, lines, options, options.delimiter or "\t", csv.QUOTE_NONE)


def _read_separated(
    name: str, lines: LineFile, options: ReadOptions, delimiter: str, quoting: Literal[0, 3]
) -> Iterator[RawDocument | Dropped]:
    unreadable: list[Line] = []

    def texts() -> Iterator[str]:
        for line in lines:
            if line.text is None:
                unreadable.append(line)
            yield f"{line.text or ''}\n"

    csv.field_size_limit(MAX_LINE)
    reader = csv.reader(texts(), delimiter=delimiter, quoting=quoting, strict=True)
    columns: list[str] = []
    while True:
        place = Place(name, reader.line_num + 1)
        try:
            cells = next(reader, None)
        except csv.Error as error:
            problem = f"the row that begins here cannot be read ({error}): a quote does not close, or stands too early"
            raise DamagedFile(f"{place}: {problem}. Mend it, or write the rows as JSON lines") from None
        if unreadable:
            yield unreadable[0].dropped(name)
            unreadable.clear()
        elif cells is None:
            break
        elif not columns:
            columns = cells
            _columns(name, columns, options.fields)
        elif not cells:
            continue
        elif len(cells) != len(columns):
            yield Dropped(place, "wrong row", f"has {plural(len(cells), 'cell')}, expected {len(columns)}")
        else:
            yield document_of(dict(zip(columns, cells, strict=True)), place, options)


def read_saved_dataset(folder: Path, options: ReadOptions) -> Iterator[RawDocument | Dropped]:
    """Yield the documents of all splits, in order, of a folder that `save_to_disk` of the `datasets` library wrote."""
    import datasets

    loaded = load_saved(folder)
    splits = loaded.items() if isinstance(loaded, datasets.DatasetDict) else [("", loaded)]
    for split, rows in splits:
        yield from _read_dataset(str(folder / split), rows, options)


def read_hub_dataset(name: str, options: ReadOptions) -> Iterator[RawDocument | Dropped]:
    """Stream the documents of a hub data set, `hf:NAME[:CONFIG][:SPLIT]`; the default split is "train".

    Raises UserError when it cannot be loaded, for instance without a connection.
    """
    offline_unless_reachable()
    import datasets

    parts = name.removeprefix("hf:").split(":")
    if not parts[0] or len(parts) > 3:
        raise UserError(f"{name}: expected hf:NAME, hf:NAME:CONFIG or hf:NAME:CONFIG:SPLIT (CONFIG may be empty)")
    config, split = (*parts[1:], "", "")[:2]
    try:
        rows = datasets.load_dataset(parts[0], config or None, split=split or "train", streaming=True)
    except Exception as error:  # the library documents no set of exceptions
        raise UserError(
            f"{name}: the data set cannot be loaded: {error}. Check the name, the configuration, the split and the "
            "connection; without one, save the data set to a folder elsewhere and give that folder."
        ) from error
    yield from _read_dataset(name, rows, options)


def _read_dataset(name: str, rows: Any, options: ReadOptions) -> Iterator[RawDocument | Dropped]:
    import datasets

    if rows.column_names:
        rows = rows.select_columns(_columns(name, rows.column_names, options.fields))
    number, saved = 0, isinstance(rows, datasets.Dataset)
    try:
        for number, row in enumerate(saved_rows(rows) if saved else rows, start=1):
            place = Place(name, number)
            yield Dropped(place, NOT_UTF8, row) if isinstance(row, str) else document_of(row, place, options)
    except OSError as error:  # also raised when the connection is lost
        raise UserError(f"{name}: breaks off after row {number:,}: {error}. Try again, or fetch it first.") from error
    except UnicodeDecodeError:  # only while streaming
        raise UserError(
            f"{name}: text after row {number:,} is not UTF-8, and streaming cannot continue past it. Save the data set "
            "to a folder with save_to_disk, and give that folder: then only such rows are left out."
        ) from None


def _columns(name: str, present: list[str], fields: Fields) -> list[str]:
    """Select the columns to read, so that others cost nothing.  Raises UserError when there is none for the text."""
    wanted = {field: _column(field, present) for field in vars(fields).values()}
    if wanted[fields.text] is None and wanted[fields.paragraphs] is None:
        if len(present) == 1 and (mark := next((mark for mark in ";\t|" if mark in present[0]), None)):
            raise UserError(
                f"{name}: there is one column, '{present[0]:.60}'; if {mark!r} separates columns, say so: "
                f"--set read.delimiter={mark!r}"
            )
        raise UserError(
            f"{name}: there is no column '{fields.text}' and none '{fields.paragraphs}'; its columns are "
            f"{', '.join(present)}. Name the one that holds the text: --set read.fields.text=NAME."
            f"{nearest(fields.text, present)}"
        )
    return [column for column in present if column in wanted.values()]


def _column(field: str, present: list[str]) -> str | None:
    """Return the column of a field: that of its name, or of its name as far as a full stop."""
    return next((name for name in (field, field.partition(".")[0]) if name in present), None)


def _cell(row: Mapping[str, Any], field: str) -> Any:
    """Return what a field holds, or None; a name with full stops leads into inner objects where none has all of it."""
    if field in row or "." not in field:
        return row.get(field)
    first, _, rest = field.partition(".")
    inner = row.get(first)
    return _cell(inner, rest) if isinstance(inner, Mapping) else None


def document_of(row: Any, place: Place, options: ReadOptions) -> RawDocument | Dropped:
    """Return the document that a row holds."""
    fields = options.fields
    if not isinstance(row, Mapping):
        return Dropped(place, "wrong fields", f"expected an object with named fields, found {_kind(row)}")
    try:
        text, title = _text(row, fields), _title(row, fields)
    except UnicodeDecodeError as error:
        return Dropped(place, NOT_UTF8, f"byte {error.start + 1} of the text or title is not UTF-8 text")
    if text is None:
        return Dropped(place, "no text", _missing(row, fields))
    if title is None:
        kind = _kind(_cell(row, fields.title))
        return Dropped(place, "wrong fields", f"'{fields.title}' is no text, but {kind}")
    if not (is_encodable(text) and is_encodable(title)):
        return Dropped(place, NOT_UTF8, f"the text holds {LONE_SURROGATE}")
    paragraphs, headings, spans = (_cell(row, name) for name in (fields.paragraphs, fields.headings, fields.spans))
    url = _cell(row, fields.url)
    document = RawDocument(place, text, title, url=url if isinstance(url, str) and is_encodable(url) else "")
    if headings is None and spans is None:
        return laid_out(document, _is_wiki(row, place), options)
    return _annotated(document, paragraphs, [] if headings is None else headings, spans, fields)


def _annotated(
    document: RawDocument, paragraphs: Any, headings: Any, given: Any, fields: Fields
) -> RawDocument | Dropped:
    """Return the document with its headings and spans, whose numbers count the lines and characters as they are."""
    place, text = document.place, document.text
    if not isinstance(headings, list) or any(type(number) is not int for number in headings):  # True is an int, too
        return Dropped(place, "wrong fields", f"'{fields.headings}' is not a list of paragraph numbers")
    count = len(paragraphs) if isinstance(paragraphs, list) else text.count("\n") + 1
    if beyond := [number for number in headings if not 0 <= number < count]:
        detail = f"'{fields.headings}' names paragraph {beyond[0]}, and they are numbered from 0 to {count - 1}"
        return Dropped(place, "wrong fields", detail)
    document = document._replace(headings=_heading_lines(paragraphs, headings))
    if given is None:
        return document
    spans = _spans(given, len(text))
    if isinstance(spans, str):
        return Dropped(place, "wrong spans", f"'{fields.spans}': {spans}")
    return document._replace(spans=spans, annotated=tuple(Kind))


def laid_out(document: RawDocument, wiki: bool, options: ReadOptions) -> RawDocument:
    """Return a document without annotation, its lines ended and put together as those of a text file."""
    text = broken_into_lines(document.text)
    text = unescaped(text) if wiki else text
    first, _, rest = text.partition("\n")
    if document.title and rest.strip() and " ".join(first.split()) == document.title:
        text = rest.lstrip("\n")  # not twice
    lines = text.split("\n")
    paragraphs = unwrapped(lines, options.wrapped)
    return document._replace(text="\n".join(paragraphs), unwrapped=len(lines) - len(paragraphs))


def _is_wiki(row: Mapping[str, Any], place: Place) -> bool:
    """Whether WikiExtractor wrote a row: with its fields, in a file of its names or with the title as first line."""
    text, title = row.get("text"), row.get("title")
    if not (isinstance(text, str) and isinstance(title, str) and {"id", "url"} <= row.keys()):
        return False
    first = text.partition("\n")[0].strip()
    return is_wiki_name(place.file) or (len(first) < len(text) and unescaped(first) == unescaped(title.strip()))


def _text(row: Mapping[str, Any], fields: Fields) -> str | None:
    text = _cell(row, fields.text)
    if isinstance(text, (str, bytes)):
        return _decoded(text)
    paragraphs = _cell(row, fields.paragraphs)
    if isinstance(paragraphs, list) and all(isinstance(paragraph, (str, bytes)) for paragraph in paragraphs):
        return "\n".join(map(_decoded, paragraphs))
    return None


def _title(row: Mapping[str, Any], fields: Fields) -> str | None:
    """Return the title, "" without one; a number or time is taken as it is written.  None stands for what has parts."""
    title = _cell(row, fields.title)
    if title is None or title != title:  # NaN, with which tables mark that there is none
        return ""
    if isinstance(title, (list, tuple, Mapping)):
        return None
    return " ".join(_decoded(title).split()) if isinstance(title, (str, bytes)) else str(title)


def _decoded(text: str | bytes) -> str:
    return text.decode() if isinstance(text, bytes) else text


def _missing(row: Mapping[str, Any], fields: Fields) -> str:
    """Say what a row without text has instead."""
    held = [(name, _cell(row, name)) for name in (fields.text, fields.paragraphs)]
    instead = [f"'{name}' holds {_kind(value)}" for name, value in held if value is not None or name in row]
    if instead and _kind(held[0][1]) == "a list of texts":
        instead[0] += f" (--set read.fields.paragraphs={fields.text})"
    keys = printable(", ".join(map(str, islice(row, _SHOWN))) + ", ..." * (len(row) > _SHOWN)) or "none"
    return (
        f"no text under '{fields.text}', no list of texts under '{fields.paragraphs}'; "
        + "".join(f"{what}; " for what in instead)
        + f"keys: {keys}"
        + "; --set read.fields.text=KEY names that of the text" * (not instead and len(row) > 0)
    )


def _kind(value: Any) -> str:
    """Name the type of a value for people."""
    if isinstance(value, list) and value:
        others = sorted({_kind(item) for item in value if not isinstance(item, (str, bytes))})
        return f"a list with {others[0]}" if others else "a list of texts"
    if isinstance(value, Mapping):
        return "an object"
    if value != value:
        return "no number (NaN)"
    return _KINDS.get(type(value), f"a {type(value).__name__}")


def _heading_lines(paragraphs: Any, numbers: list[int]) -> frozenset[int]:
    """Map numbers of paragraphs to the lines they begin at: a paragraph may contain line breaks."""
    if not isinstance(paragraphs, list):
        return frozenset(numbers)
    first_lines = [0]
    for paragraph in paragraphs:
        first_lines.append(first_lines[-1] + 1 + str(paragraph).count("\n"))
    return frozenset(first_lines[number] for number in numbers)


def _spans(value: Any, size: int) -> np.ndarray | str:
    """Convert spans to an array (k, 3), or return what is wrong with them."""
    if not isinstance(value, list):
        return "expected a list of [start, end, kind]"
    spans = []
    for span in value:
        if isinstance(span, Mapping):  # lists in Parquet hold a single type, so a span there is a struct
            span = [span.get(name) for name in ("start", "end", "kind")]
        if not isinstance(span, (list, tuple)) or len(span) != 3 or span[2] not in SPAN_KINDS:
            return f"expected [start, end, kind] with kind {', '.join(SPAN_KINDS)}, found {span!r}"
        start, end = span[:2]
        if not (isinstance(start, int) and isinstance(end, int) and 0 <= start < end <= size):
            return f"expected 0 <= start < end <= {size}, the length of the text, found {span}"
        spans.append((start, end, SPAN_KINDS.index(span[2])))
    return np.asarray(spans, dtype=np.int64).reshape(-1, 3)

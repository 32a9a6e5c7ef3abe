"""Documents from rows with named fields: JSON lines, Parquet files and data sets of the `datasets` library."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ernie.data.raw import SPAN_KINDS, Dropped, Fields, Place, RawDocument, ReadOptions
from ernie.data.reach import offline_unless_reachable
from ernie.data.read_lines import NOT_UTF8, Line
from ernie.data.tables import load_saved, parquet_rows, saved_rows
from ernie.errors import UserError, nearest
from ernie.text.segment.base import Kind
from ernie.text.surrogates import LONE_SURROGATE, is_encodable, printable


def read_json_lines(file: str, lines: Iterable[Line], options: ReadOptions) -> Iterator[RawDocument | Dropped]:
    """Yield one document per line, skipping blank lines."""
    for line in lines:
        place = Place(file, line.number)
        if line.text is None:
            yield line.dropped(file)
        elif line.text.strip():
            try:
                row = json.loads(line.text)
            except (ValueError, RecursionError) as error:  # huge numbers raise ValueError, not JSONDecodeError
                yield Dropped(place, "not JSON", f"the line is not JSON: {error}")
                continue
            yield _document(row, place, options.fields)


def read_parquet(
    path: Path, options: ReadOptions, progress: Callable[[float], None]
) -> Iterator[RawDocument | Dropped]:
    """Yield one document per row, reading in bounded memory; `progress` is called with the share of rows read so far.

    Raises UserError when the file is damaged or has no column for the text.
    """
    rows = parquet_rows(path, lambda names: _columns(str(path), names, options.fields), progress)
    for number, row in enumerate(rows, 1):
        place = Place(str(path), number)
        yield Dropped(place, NOT_UTF8, row) if isinstance(row, str) else _document(row, place, options.fields)


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
            yield Dropped(place, NOT_UTF8, row) if isinstance(row, str) else _document(row, place, options.fields)
    except OSError as error:  # also raised when the connection is lost
        raise UserError(f"{name}: breaks off after row {number:,}: {error}. Try again, or fetch it first.") from error
    except UnicodeDecodeError:  # only while streaming
        raise UserError(
            f"{name}: text after row {number:,} is not UTF-8, and streaming cannot continue past it. Save the data set "
            "to a folder with save_to_disk, and give that folder: then only such rows are left out."
        ) from None


def _columns(name: str, present: list[str], fields: Fields) -> list[str]:
    """Select the columns to read, so that others cost nothing.  Raises UserError when there is none for the text."""
    if fields.text not in present and fields.paragraphs not in present:
        raise UserError(
            f"{name}: there is no column '{fields.text}' and none '{fields.paragraphs}'; its columns are "
            f"{', '.join(present)}. Name the one that holds the text: --set read.fields.text=NAME."
            f"{nearest(fields.text, present)}"
        )
    wanted = vars(fields).values()
    return [column for column in present if column in wanted]


def _document(row: Any, place: Place, fields: Fields) -> RawDocument | Dropped:
    if not isinstance(row, Mapping):
        return Dropped(place, "wrong fields", "expected an object with named fields")
    text = _text(row, fields)
    if text is None:
        keys = printable(", ".join(map(str, row))) or "none"
        return Dropped(
            place,
            "no text",
            f"no text under '{fields.text}', no list of texts under '{fields.paragraphs}'; keys: {keys}",
        )
    title = row.get(fields.title) or ""
    if not isinstance(title, str):
        return Dropped(place, "wrong fields", f"'{fields.title}' is not text")
    title = " ".join(title.split())
    if not (is_encodable(text) and is_encodable(title)):
        return Dropped(place, NOT_UTF8, f"the text holds {LONE_SURROGATE}")
    headings = [] if row.get(fields.headings) is None else row[fields.headings]
    if not isinstance(headings, list) or any(type(number) is not int for number in headings):  # True is an int, too
        return Dropped(place, "wrong fields", f"'{fields.headings}' is not a list of paragraph numbers")
    paragraphs = row.get(fields.paragraphs)
    count = len(paragraphs) if isinstance(paragraphs, list) else text.count("\n") + 1
    if beyond := [number for number in headings if not 0 <= number < count]:
        detail = f"'{fields.headings}' names paragraph {beyond[0]}, and they are numbered from 0 to {count - 1}"
        return Dropped(place, "wrong fields", detail)
    document = RawDocument(place, text, title, _heading_lines(paragraphs, headings))
    if row.get(fields.spans) is None:
        return document
    spans = _spans(row[fields.spans], len(text))
    if isinstance(spans, str):
        return Dropped(place, "wrong spans", f"'{fields.spans}': {spans}")
    return document._replace(spans=spans, annotated=tuple(Kind))


def _text(row: Mapping[str, Any], fields: Fields) -> str | None:
    text = row.get(fields.text)
    if isinstance(text, str):
        return text
    paragraphs = row.get(fields.paragraphs)
    if isinstance(paragraphs, list) and all(isinstance(paragraph, str) for paragraph in paragraphs):
        return "\n".join(paragraphs)
    return None


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

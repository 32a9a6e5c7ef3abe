"""Read the rows to predict from a file or standard input."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import BinaryIO, Literal, TextIO, TypeVar

from ernie.data.compressed import uncompressed_name
from ernie.data.labeled.read import adapted, is_json_row, is_stream, parse_lines, read_rows, stream_lines
from ernie.data.labeled.row import Fault, Row, RowOptions
from ernie.data.read_lines import Line, LineFile, decoded
from ernie.errors import Remark, UserError
from ernie.formatting import plural
from tasks.downstream.base import FinetuneTask

T = TypeVar("T")
GROUP = 512  # rows that are held in memory at a time


class FaultyRow(UserError):
    """A row that cannot be read or used."""


def input_rows(
    name: str, options: RowOptions, task: FinetuneTask, validate: Callable[[Row], object] | None = None
) -> Iterator[Row]:
    """Yield the rows of a file, or of standard input for "-", one by one.

    Lines of text become rows with the column that the task reads.  Raises FaultyRow for a row that cannot be read.  If
    the options say that faulty rows are skipped, so are rows for which `validate` raises UserError.
    """
    column = read_column(task)

    def named(row: Row) -> Row:
        # Renamed, not copied: another column that the task reads may be called `text`.
        return Row({column: row["text"]}, row.place) if row.keys() == {"text"} else row

    skips = validate is not None and options.faulty == "skip"
    check = (lambda row: validate(named(row))) if validate and skips else None
    for row in file_rows(name, options, column, check):
        yield named(row)


def read_column(task: FinetuneTask) -> str:
    """Return the column that a task reads, or the first of several."""
    return next((getattr(task, field) for field in ("text", "tokens", "audio") if hasattr(task, field)), "text")


def file_rows(
    name: str, options: RowOptions, column: str = "", validate: Callable[[Row], object] | None = None
) -> Iterator[Row]:
    """Yield rows as `input_rows` does, but unchanged; a first line that contains `column` is taken as the header."""
    rows: Iterable[Row | Fault | None]
    if name == "-":
        rows = _stream_rows("standard input", standard_lines, options, column)
    elif is_unnamed(name) and options.format == "auto":
        rows = _stream_rows(name, lambda: stream_lines(Path(name)), options, column)
    else:
        rows = read_rows(name, _with_detected_format(name, options, column) if column else options)
    return usable_rows(rows, options, validate)


def is_unnamed(name: str) -> bool:
    """Return whether a name is that of standard input, or of a pipe, which does not tell its format."""
    return name == "-" or (is_stream(Path(name)) and not Path(name).suffix)


def in_groups(rows: Iterable[T]) -> Iterator[list[T]]:
    """Yield rows in groups of up to GROUP; rows before a reading error are yielded before it is raised."""
    held: list[T] = []
    try:
        for row in rows:
            held.append(row)
            if len(held) == GROUP:
                yield held
                held = []
    except UserError:
        if held:
            yield held
        raise
    if held:
        yield held


def groups_as_available(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield rows in groups of whatever has arrived by the time the previous group is done, without waiting for more.

    A thread reads ahead by at most two full groups.
    """
    queue: Queue[Row | BaseException | None] = Queue(maxsize=2 * GROUP)

    def read() -> None:
        try:
            for row in rows:
                queue.put(row)
            queue.put(None)
        except BaseException as error:  # raised again in the consumer's thread
            queue.put(error)

    Thread(target=read, daemon=True, name="rows").start()
    while True:
        held: list[Row] = []
        item = queue.get()
        while isinstance(item, Row):
            held.append(item)
            if len(held) == GROUP or queue.empty():
                break
            item = queue.get()
        if held:
            yield held
        if item is None:
            return
        if isinstance(item, BaseException):
            raise item


def _stream_rows(
    name: str, read: Callable[[], Iterator[Line]], options: RowOptions, column: str
) -> Iterator[Row | Fault | None]:
    form: str = options.format
    if form in ("parquet", "json", "squad"):
        raise UserError(f"--format {form}: cannot be read from standard input; give a file")
    lines = read()
    if form == "auto":
        first = next(lines, None)
        if first is None:
            return iter(())
        text = first.text or ""
        if text.strip() == "[" or text.startswith("[{"):
            raise UserError(
                f"{name}: begins as a JSON document does; give a file, or its rows as JSON lines, or --format text if "
                "it is text"
            )
        form = "jsonl" if is_json_row(text) else _detect_separated(name, text, options, column) or "text"
        lines = chain([first], lines)
    return adapted(parse_lines(name, lines, form, options), options)


def _with_detected_format(name: str, options: RowOptions, column: str) -> RowOptions:
    """Return the options, with the format of a .txt file with a header line, detected as for standard input."""
    path = Path(name)
    if options.format != "auto" or Path(uncompressed_name(name)).suffix.lower() != ".txt" or not path.is_file():
        return options
    first = next(iter(LineFile(path)), None)
    if first is None or first.text is None or is_json_row(first.text):  # JSON lines are known by that
        return options
    form = _detect_separated(name, first.text, options, column)
    return options if form is None else replace(options, format=form)


def _detect_separated(name: str, line: str, options: RowOptions, column: str) -> Literal["tsv", "csv"] | None:
    """Return the format of lines whose first one contains the column, or has tabs and the column names are given."""
    names, tabbed = ([name.strip('"') for name in line.split(mark)] for mark in ",\t")
    is_header = all(name and name == name.strip() for name in names)  # a sentence has spaces after its commas
    if len(tabbed) > 1 and (options.columns or column in tabbed):
        return "tsv"
    if column in names and is_header:
        return "csv"
    problem = ""
    if column in names:
        problem = f"its first line has the part '{column}', but spaces beside commas, unlike column names"
    elif len(tabbed) > 1:
        problem = f"its first line has tabs, but does not name a column '{column}'"
    if problem:
        warnings.warn(f"{name}: {problem}: each line is answered as one text", Remark, stacklevel=2)
    return None


def standard_lines() -> Iterator[Line]:
    """Yield the lines of standard input as they arrive.  Raises UserError when it is closed."""
    return decoded(standard_input())


def standard_input() -> BinaryIO:
    """Return standard input as a binary stream.  Raises UserError when it is closed."""
    if sys.stdin is None:
        raise UserError("standard input is closed; redirect a file to it (< FILE)")
    # A separate file object: Python aborts at exit if a thread still waits for input from sys.stdin's own.
    return open(sys.stdin.fileno(), "rb", closefd=False)


def standard_characters() -> TextIO:
    """Return standard input as a text stream to read by character; bytes that are not UTF-8 become surrogates."""
    return TextIOWrapper(standard_input(), encoding="utf-8", errors="surrogateescape", newline="\n")


class LeftOut:
    """The lines of a stream, or files, that cannot be used: noted as they come, and an error once all are read.

    What follows them is not lost: whoever writes to a stream cannot write it again.
    """

    def __init__(self, what: str, unit: str = "line"):
        self._what, self._unit = what, unit  # `what` follows their number: "could not be spoken"
        self._count, self._first = 0, ""

    def add(self, message: str) -> None:
        """Note which line or file cannot be used, and why."""
        self._count += 1
        self._first = self._first or message
        warnings.warn(message, Remark, stacklevel=2)

    def raise_if_any(self) -> None:
        """Raise UserError that counts the lines or files, and repeats the first message."""
        if self._count:
            raise UserError(f"{plural(self._count, self._unit)} {self._what}; the first: {self._first}")


def usable_rows(
    rows: Iterable[Row | Fault | None], options: RowOptions, validate: Callable[[Row], object] | None = None
) -> Iterator[Row]:
    """Yield the usable rows.  Raises FaultyRow at a faulty one, or skips it as the options say and warns at the end.

    Raises UserError if all rows were faulty.
    """
    used, skipped, first = 0, 0, ""
    for row in rows:
        fault = row if isinstance(row, Fault) else None
        if isinstance(row, Row) and validate is not None:
            fault = _fault(row, validate)
        if fault is not None and options.faulty != "skip":
            raise FaultyRow(str(fault))
        if isinstance(row, Row) and fault is None:
            used += 1
            yield row
        else:
            skipped += 1
            first = first or ("" if fault is None else f"; the first faulty one: {fault}")
    if first and not used:
        raise UserError(f"none of {plural(skipped, 'row')} can be used{first}")
    if skipped:
        warnings.warn(f"{plural(skipped, 'row')} skipped, as 'skip' or 'faulty' asks{first}", Remark, stacklevel=2)


def _fault(row: Row, validate: Callable[[Row], object]) -> Fault | None:
    try:
        validate(row)
    except UserError as error:
        return Fault(row.place, str(error))
    return None

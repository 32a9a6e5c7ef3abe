"""The rows that are to be answered: of a run's own data, of a file, or of standard input."""

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
from typing import BinaryIO, Literal, TextIO

from ernie.data.labelled.read import adapted, is_stream, parse_lines, read_rows, stream_lines
from ernie.data.labelled.row import Fault, Row, RowOptions
from ernie.data.read_lines import Line, LineFile, decoded
from ernie.errors import Remark, UserError
from ernie.report.words import plural
from finetune.config import FinetuneConfig
from tasks.downstream.base import FinetuneTask

GROUP = 512  # rows that are held at a time


class FaultyRow(UserError):
    """A row that cannot be read, or not be used."""


def split_rows(config: FinetuneConfig, split: str, use: Callable[[Row], object] | None = None) -> Iterator[Row]:
    """The rows of a split of a run's data.

    Where the data says that faulty rows are skipped, so are those of which `use` raises UserError.  Raises it when
    there is none, or a row cannot be read.
    """
    data, options = config.data, config.data.options(split)
    rows = chain.from_iterable(read_rows(source, options) for source in data.sources(split))
    return _usable(rows, options, use if options.faulty == "skip" else None)


def input_rows(
    name: str, options: RowOptions, task: FinetuneTask, use: Callable[[Row], object] | None = None
) -> Iterator[Row]:
    """The rows of a file, or of standard input for "-", one by one.

    Lines of text become rows with the column that the task reads.  Raises FaultyRow for a row that cannot be read;
    where the options say that faulty rows are skipped, those of which `use` raises UserError are, too.
    """
    column = read_column(task)

    def named(row: Row) -> Row:
        return Row({**row, column: row["text"]}, row.place) if row.keys() == {"text"} else row

    skips = use is not None and options.faulty == "skip"
    for row in file_rows(name, options, column, (lambda row: use(named(row))) if use and skips else None):
        yield named(row)


def read_column(task: FinetuneTask) -> str:
    """The column that a task reads, or the first of them."""
    return next((getattr(task, field) for field in ("text", "tokens", "audio") if hasattr(task, field)), "text")


def file_rows(
    name: str, options: RowOptions, column: str = "", use: Callable[[Row], object] | None = None
) -> Iterator[Row]:
    """The same as they are; a line of names with this column among them is known by it."""
    rows: Iterable[Row | Fault | None]
    if name == "-":
        rows = _streamed("standard input", standard_lines, options, column)
    elif is_unnamed(name) and options.format == "auto":
        rows = _streamed(name, lambda: stream_lines(Path(name)), options, column)
    else:
        rows = read_rows(name, _told(name, options, column) if column else options)
    return _usable(rows, options, use)


def is_unnamed(name: str) -> bool:
    """Whether it is standard input, or a pipe whose name does not tell what is in it."""
    return name == "-" or (is_stream(Path(name)) and not Path(name).suffix)


def in_groups(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows in groups of some hundred; where reading on is an error, the rows before it are handed out first."""
    held: list[Row] = []
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


def as_they_come(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Rows in groups of whatever has arrived by the time the group before is done with: nothing waits for more.

    A thread reads ahead, no more than two groups.
    """
    arrived: Queue[Row | BaseException | None] = Queue(maxsize=2 * GROUP)

    def read() -> None:
        try:
            for row in rows:
                arrived.put(row)
            arrived.put(None)
        except BaseException as error:  # raised again by whoever waits for the rows
            arrived.put(error)

    Thread(target=read, daemon=True, name="rows").start()
    while True:
        held: list[Row] = []
        item = arrived.get()
        while isinstance(item, Row):
            held.append(item)
            if len(held) == GROUP or arrived.empty():
                break
            item = arrived.get()
        if held:
            yield held
        if item is None:
            return
        if isinstance(item, BaseException):
            raise item


def _streamed(
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
        form = "jsonl" if text.startswith("{") else _separated(name, text, options, column) or "text"
        lines = chain([first], lines)
    return adapted(parse_lines(name, lines, form, options), options)


def _told(name: str, options: RowOptions, column: str) -> RowOptions:
    """The options, with the format of a .txt file that has a line of names: it is read as standard input is."""
    path = Path(name)
    if options.format != "auto" or Path(name.removesuffix(".gz")).suffix.lower() != ".txt" or not path.is_file():
        return options
    first = next(iter(LineFile(path)), None)
    if first is None or first.text is None or first.text.startswith("{"):  # JSON lines are known by that
        return options
    form = _separated(name, first.text, options, column)
    return options if form is None else replace(options, format=form)


def _separated(name: str, line: str, options: RowOptions, column: str) -> Literal["tsv", "csv"] | None:
    """The format of lines whose first one has the column among its names, or tabs where names are given."""
    names, tabbed = ([name.strip('"') for name in line.split(mark)] for mark in ",\t")
    if len(tabbed) > 1 and (options.columns or column in tabbed):
        return "tsv"
    if column in names:
        return "csv"
    if len(tabbed) > 1:
        said = f"its first line has tabs, but does not name a column '{column}'"
        warnings.warn(f"{name}: {said}: each line is answered as one text", Remark, stacklevel=2)
    return None


def standard_lines() -> Iterator[Line]:
    """The lines of standard input, as they come.  Raises UserError where it is closed."""
    return decoded(standard_input())


def standard_input() -> BinaryIO:
    """The bytes of standard input.  Raises UserError where it is closed."""
    if sys.stdin is None:
        raise UserError("standard input is closed; give a file")
    # A file object of our own: a thread that waits for sys.stdin's would have Python abort when it exits meanwhile.
    return open(sys.stdin.fileno(), "rb", closefd=False)


def standard_letters() -> TextIO:
    """The same, to be read letter by letter; bytes that are no UTF-8 come as surrogates."""
    return TextIOWrapper(standard_input(), encoding="utf-8", errors="surrogateescape", newline="\n")


def standard_texts() -> Iterator[str]:
    """The same as text.  Raises UserError for a line that is none, with its number."""
    for line in standard_lines():
        if line.text is None:
            raise UserError(f"line {line.number}: {line.problem}")
        yield line.text


def _usable(
    rows: Iterable[Row | Fault | None], options: RowOptions, use: Callable[[Row], object] | None = None
) -> Iterator[Row]:
    """The rows; a faulty one stops with its sentence, those to be skipped are left out, and their number is said."""
    skipped = 0
    for row in rows:
        if row is None or (isinstance(row, Fault) and options.faulty == "skip"):
            skipped += 1
        elif isinstance(row, Fault):
            raise FaultyRow(str(row))
        elif use is not None and _is_unusable(row, use):
            skipped += 1
        else:
            yield row
    if skipped:
        warnings.warn(f"{plural(skipped, 'row')} skipped, as 'skip' or 'faulty' asks", Remark, stacklevel=2)


def _is_unusable(row: Row, use: Callable[[Row], object]) -> bool:
    try:
        use(row)
    except UserError:
        return True
    return False

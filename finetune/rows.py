"""The rows that are to be answered: of a run's own data, of a file, or of standard input."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import TextIO

from ernie.data.labelled.read import parse_lines, read_rows
from ernie.data.labelled.row import Fault, Format, Row, RowOptions
from ernie.data.read_lines import Line
from ernie.errors import UserError, nearest
from finetune.config import FinetuneConfig
from tasks.downstream.base import FinetuneTask


def split_rows(config: FinetuneConfig, split: str) -> Iterator[Row]:
    """The rows of a split of a run's data.  Raises UserError when there is none, or a row cannot be read."""
    splits = config.data.splits()
    if split not in splits:
        raise UserError(f"the run's data has no split '{split}'.{nearest(split, splits)}")
    return chain.from_iterable(_usable(read_rows(source, config.data.options(split))) for source in splits[split])


def input_rows(name: str, form: Format, columns: tuple[str, ...], task: FinetuneTask) -> Iterator[Row]:
    """The rows of a file, or of standard input for "-", one by one.

    Lines of text become rows with the column that the task reads.  Raises UserError for a row that cannot be read.
    """
    options = RowOptions(format=form, columns=columns)
    rows = _usable(_standard_input(sys.stdin, options) if name == "-" else read_rows(name, options))
    column = getattr(task, "text", getattr(task, "tokens", "text"))
    for row in rows:
        yield Row({column: row["text"]}, row.place) if row.keys() == {"text"} else row


def _standard_input(stream: TextIO, options: RowOptions) -> Iterator[Row | Fault]:
    lines = (Line(number, text.rstrip("\r\n")) for number, text in enumerate(stream, 1))
    form = options.format
    if form == "auto":
        first = next(lines, None)
        if first is None:
            return iter(())
        text = first.text or ""
        form = "jsonl" if text.startswith("{") else "tsv" if "\t" in text else "text"
        return parse_lines("standard input", chain([first], lines), form, options)
    if form in ("parquet", "squad"):
        raise UserError(f"--format {form}: cannot be read from standard input; give a file")
    return parse_lines("standard input", lines, form, options)


def _usable(rows: Iterable[Row | Fault | None]) -> Iterator[Row]:
    """The rows; a faulty one stops with its sentence, one to be skipped is left out."""
    for row in rows:
        if isinstance(row, Fault):
            raise UserError(str(row))
        if row is not None:
            yield row

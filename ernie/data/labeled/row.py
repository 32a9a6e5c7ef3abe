"""Rows of labeled data, and the options that map a file's column names and values to those that a task expects."""

from __future__ import annotations

import json
import math
import re
import reprlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from ernie.data.labeled.literal import OPENING, NotLiteral, read_literal
from ernie.data.raw import Place
from ernie.errors import UserError, about, nearest
from ernie.text.blank import is_blank
from ernie.text.surrogates import is_encodable, require_encodable


class Row(dict[str, Any]):
    """The cells of one row by column; `place` is its source file and line."""

    def __init__(self, cells: Mapping[str, Any], place: Place | None = None):
        super().__init__(cells)
        self.place = place or Place("", 0)

    def cell(self, column: str) -> Any:
        """Return the cell of a column.  Raises UserError when there is no such column."""
        if column not in self:
            outer, dot, _ = column.partition(".")
            if dot and isinstance(self.get(outer), Mapping):
                way = f"compose: {{NAME: '{{{column}}}'}} under `data` makes a column NAME of a part of '{outer}'"
                raise UserError(f"there is no column '{column}'; {way}")
            raise UserError(f"there is no column '{column}'.{nearest(column, self)}")
        return self[column]

    def text(self, column: str) -> str:
        """Return the cell of a column as text (see `spelled`).  Raises UserError when it is missing or not text."""
        cell = self.cell(column)
        nothing = not isinstance(cell, str) and is_empty(cell)
        if nothing or not isinstance(cell, (str, int, float)):
            raise UserError(f"column '{column}': expected text, found {'nothing' if nothing else reprlib.repr(cell)}")
        return _encodable(column, spelled(cell))

    def texts(self, column: str, what: str = "texts") -> list[str]:
        """Return the cell of a column as a list of strings, with integers as text.

        The list may be spelled as text (see `as_list`).  Raises UserError, naming the strings `what`, if it is not such
        a list.
        """
        cell = self.cell(column)
        items = as_list(cell)
        if items is None or not all(isinstance(item, (str, int)) for item in items):
            raise UserError(f"column '{column}': expected a list of {what}, found {reprlib.repr(cell)}")
        return [_encodable(column, spelled(item)) for item in items]


class Fault(NamedTuple):
    """A row that cannot be used, and why."""

    place: Place
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


def is_empty(cell: Any) -> bool:
    """Return whether a cell is empty: null, blank text, or NaN, by which pandas represents empty cells."""
    return cell is None or (isinstance(cell, str) and is_blank(cell)) or (isinstance(cell, float) and math.isnan(cell))


def as_value(cell: Any) -> Any:
    """Return a cell with arrays as lists, and the list or object that a text spells, as in a CSV file of lists."""
    if isinstance(cell, str) and OPENING.match(cell):
        with suppress(NotLiteral):
            return read_literal(cell)
    if isinstance(cell, tuple):
        return list(cell)
    return cell.tolist() if hasattr(cell, "tolist") else cell


def as_list(cell: Any) -> list[Any] | None:
    """Return the items of a cell that is a list, a tuple or an array, or text that spells one; None for any other."""
    value = as_value(cell)
    return value if isinstance(value, list) else None


def spelled(cell: Any) -> str:
    """Return a cell as text, with true, false and null as JSON and YAML write them, not as Python does."""
    return json.dumps(cell) if cell is None or isinstance(cell, bool) else str(cell)


def _encodable(column: str, text: str) -> str:
    if is_encodable(text):
        return text
    with about(f"column '{column}'"):
        return require_encodable(text)


_PLACEHOLDER = re.compile(r"\{([^{}]+)\}")
Format = Literal["auto", "tsv", "csv", "jsonl", "json", "parquet", "conll", "squad", "text"]


@dataclass(frozen=True)
class RowOptions:
    """Options for reading files and adapting their rows.

    `format` is derived from the file name unless given.  `columns` names the columns of a file without a header line;
    further cells of a line are dropped.  `delimiter` and `quote` apply to .tsv and .csv files: by default a tab and no
    quoting, or a comma and ".  `escape` is the character before a quote within a cell, such as a backslash, where it is
    not doubled.  `rename` maps column names: {new name: name in the file}.  `join` turns lists into text: {column:
    separator}.  `compose` creates text columns from other cells: {column: "{first} and {second.part}"}, where a dot
    selects a named part of a cell.  `values` replaces cells: {column: {cell: replacement}}.  `skip` drops and counts
    rows whose cell is in a list: {column: [cell, ...]}, where '' is any empty cell.  A column that is empty in every
    row of a split drops none of them.  These four use the new column names.  `faulty: skip` also drops and counts rows
    that cannot be read; otherwise such rows are an error.
    """

    format: Format = "auto"
    columns: tuple[str, ...] = ()
    delimiter: str = ""
    quote: str | None = None
    escape: str = ""
    rename: dict[str, str] = field(default_factory=dict)
    values: dict[str, dict[str, str]] = field(default_factory=dict)
    skip: dict[str, tuple[str, ...]] = field(default_factory=dict)
    join: dict[str, str] = field(default_factory=dict)
    compose: dict[str, str] = field(default_factory=dict)
    faulty: Literal["stop", "skip"] = "stop"

    def __post_init__(self) -> None:
        for name in ("delimiter", "quote", "escape"):
            if len(getattr(self, name) or "") > 1:
                raise UserError(f"{name}: expected one character, found '{getattr(self, name)}'")
        for column, pattern in self.compose.items():
            if {"{", "}"} & {*_PLACEHOLDER.sub("", pattern)}:
                raise UserError(f"compose.{column}: '{pattern}' has a brace that encloses no column, such as {{text}}")

    def keeping_empty(self, columns: Sequence[str]) -> RowOptions:
        """Return the options without the skipping of rows whose cell in one of these columns is empty."""
        skip = {
            column: tuple(cell for cell in cells if cell or column not in columns)
            for column, cells in self.skip.items()
        }
        return replace(self, skip=skip)

    def adapt(self, row: Row) -> Row | None:
        """Return the row with these options applied; None for a row to be skipped.

        Raises UserError when a column to be renamed, or one that `compose` refers to, is missing.
        """
        cells = dict(row)
        for new, old in self.rename.items():
            cells[new] = row.cell(old)
        for column, separator in self.join.items():
            if (items := as_list(cells.get(column))) is not None:
                cells[column] = separator.join(spelled(item) for item in items if item is not None)
        for column, pattern in self.compose.items():
            current = Row(cells, row.place)
            cells[column] = _PLACEHOLDER.sub(lambda match, row=current: _part(row, match[1]), pattern)  # type: ignore[misc]
        for column, replacements in self.values.items():
            if column in cells:
                cells[column] = _replace(cells[column], replacements)
        for column, unwanted in self.skip.items():
            cell = cells.get(column)
            if spelled(cell).strip() in unwanted or ("" in unwanted and is_empty(cell)):
                return None
        return Row(cells, row.place)


def _part(row: Row, path: str) -> str:
    """Return the text of a column, or of the named part of its cell for `column.part`."""
    *outer, name = path.split(".")
    for key in outer:
        inner = row.cell(key)
        if not isinstance(inner, Mapping):
            raise UserError(f"column '{key}': expected named parts, found {reprlib.repr(inner)}")
        row = Row(inner, row.place)
    return row.text(name)


def _replace(cell: Any, replacements: Mapping[str, str]) -> Any:
    items = None if spelled(cell).strip() in replacements else as_list(cell)
    if items is None:
        return replacements.get(spelled(cell).strip(), cell)
    replaced = [_replace(item, replacements) for item in items]
    return cell if replaced == items else replaced

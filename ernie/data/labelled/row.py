"""A row of labelled data, and how a file's own names and values become those that a task asks for."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ernie.data.raw import Place
from ernie.errors import UserError, about, nearest
from ernie.text.whole import whole


class Row(dict[str, Any]):
    """The cells of one row by column; `place` is where it was read."""

    def __init__(self, cells: Mapping[str, Any], place: Place | None = None):
        super().__init__(cells)
        self.place = place or Place("", 0)

    def cell(self, column: str) -> Any:
        """The cell of a column.  Raises UserError when there is none."""
        if column not in self:
            raise UserError(f"there is no column '{column}'.{nearest(column, self)}")
        return self[column]

    def text(self, column: str) -> str:
        """The cell of a column as text (see `spelled`).  Raises UserError when there is none, or no text in it."""
        cell = self.cell(column)
        # pandas has a number that is none in the place of an empty cell.
        nothing = cell is None or (isinstance(cell, float) and math.isnan(cell))
        if nothing or not isinstance(cell, (str, int, float)):
            raise UserError(f"column '{column}': expected text, found {'nothing' if nothing else repr(cell)}")
        return _whole(column, spelled(cell))

    def texts(self, column: str, what: str = "texts") -> list[str]:
        """The cell of a column as a list of texts.  Raises UserError when there is none; `what` says what they are."""
        cell = self.cell(column)
        if not isinstance(cell, list) or not all(isinstance(item, str) for item in cell):
            raise UserError(f"column '{column}': expected a list of {what}, found {cell!r}")
        return [_whole(column, item) for item in cell]


class Fault(NamedTuple):
    """A row that cannot be used, and why."""

    place: Place
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


def spelled(cell: Any) -> str:
    """What is in a cell as JSON and YAML write it: true, false and null are not True, False and None."""
    return json.dumps(cell) if cell is None or isinstance(cell, bool) else str(cell)


def _whole(column: str, text: str) -> str:
    with about(f"column '{column}'"):
        return whole(text)


_PLACE = re.compile(r"\{([^{}]+)\}")
Format = Literal["auto", "tsv", "csv", "jsonl", "json", "parquet", "conll", "squad", "text"]


@dataclass(frozen=True)
class RowOptions:
    """How files are read, and what is changed of their rows.

    `format` is told by a file's name unless given.  `columns` names the columns of a file without a header line; what
    a line has beyond them is left out.  `delimiter` and `quote` are those of a .tsv or .csv file: by default a tab and
    no quoting, or a comma and ".  `rename` says what a column is called here: {name here: name in the file}.
    `join` makes text of lists: {column: what stands between the items}.  `compose` makes new columns of text with the
    cells of others in it: {column: "{one} and {other.part}"}, where a point leads into a cell with named parts.
    `values` replaces cells: {column: {cell: replacement}}.  `skip` leaves out rows whose cell is one of a list:
    {column: [cell, ...]}; they are counted.  All four speak of columns by their names here.  `faulty: skip` leaves out
    and counts rows that cannot be read, too; otherwise they are an error.
    """

    format: Format = "auto"
    columns: tuple[str, ...] = ()
    delimiter: str = ""
    quote: str | None = None
    rename: dict[str, str] = field(default_factory=dict)
    values: dict[str, dict[str, str]] = field(default_factory=dict)
    skip: dict[str, tuple[str, ...]] = field(default_factory=dict)
    join: dict[str, str] = field(default_factory=dict)
    compose: dict[str, str] = field(default_factory=dict)
    faulty: Literal["stop", "skip"] = "stop"

    def __post_init__(self) -> None:
        for name in ("delimiter", "quote"):
            if len(getattr(self, name) or "") > 1:
                raise UserError(f"{name}: expected one character, found '{getattr(self, name)}'")

    def adapt(self, row: Row) -> Row | None:
        """The row under the names and with the values asked for; None for one that is to be skipped.

        Raises UserError when a column to be renamed, or one that a composed text names, is missing.
        """
        cells = dict(row)
        for here, there in self.rename.items():
            cells[here] = row.cell(there)
        for column, between in self.join.items():
            if isinstance(cells.get(column), list):
                cells[column] = between.join(map(str, cells[column]))
        for column, pattern in self.compose.items():
            made = Row(cells, row.place)
            cells[column] = _PLACE.sub(lambda found, made=made: _part(made, found[1]), pattern)  # type: ignore[misc]
        for column, table in self.values.items():
            if column in cells:
                cells[column] = _replaced(cells[column], table)
        if any(spelled(cells.get(column)) in unwanted for column, unwanted in self.skip.items()):
            return None
        return Row(cells, row.place)


def _part(row: Row, path: str) -> str:
    """The text at a column's name, or at `column.part` inside its cell."""
    *outer, name = path.split(".")
    for key in outer:
        inner = row.cell(key)
        if not isinstance(inner, Mapping):
            raise UserError(f"column '{key}': expected named parts, found {inner!r}")
        row = Row(inner, row.place)
    return row.text(name)


def _replaced(cell: Any, table: Mapping[str, str]) -> Any:
    if isinstance(cell, list):
        return [_replaced(item, table) for item in cell]
    return table.get(spelled(cell), cell)

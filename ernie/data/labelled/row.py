"""A row of labelled data, and how a file's own names and values become those that a task asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from ernie.data.raw import Place
from ernie.errors import UserError, nearest


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
        """The cell of a column as text.  Raises UserError when there is none, or no text in it."""
        cell = self.cell(column)
        if not isinstance(cell, (str, int, float)) or isinstance(cell, bool):
            raise UserError(f"column '{column}': expected text, found {'nothing' if cell is None else repr(cell)}")
        return str(cell)


class Fault(NamedTuple):
    """A row that cannot be used, and why."""

    place: Place
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


Format = Literal["auto", "tsv", "csv", "jsonl", "parquet", "conll", "squad", "text"]


@dataclass(frozen=True)
class RowOptions:
    """How files are read, and what is changed of their rows.

    `format` is told by a file's name unless given.  `columns` names the columns of a file without a header line; what
    a line has beyond them is left out.  `delimiter` and `quote` are those of a .tsv or .csv file: by default a tab and
    no quoting, or a comma and ".  `rename` says what a column is called here: {name here: name in the file}.
    `values` replaces cells: {column: {cell: replacement}}.  `skip` leaves out rows whose cell is one of a list:
    {column: [cell, ...]}; they are counted.  Both speak of columns by their names here.
    """

    format: Format = "auto"
    columns: tuple[str, ...] = ()
    delimiter: str = ""
    quote: str | None = None
    rename: dict[str, str] = field(default_factory=dict)
    values: dict[str, dict[str, str]] = field(default_factory=dict)
    skip: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("delimiter", "quote"):
            if len(getattr(self, name) or "") > 1:
                raise UserError(f"{name}: expected one character, found '{getattr(self, name)}'")

    def adapt(self, row: Row) -> Row | None:
        """The row under the names and with the values asked for; None for one that is to be skipped.

        Raises UserError when a column to be renamed is missing.
        """
        cells = dict(row)
        for here, there in self.rename.items():
            cells[here] = row.cell(there)
        for column, table in self.values.items():
            if column in cells:
                cells[column] = _replaced(cells[column], table)
        if any(str(cells.get(column)) in unwanted for column, unwanted in self.skip.items()):
            return None
        return Row(cells, row.place)


def _replaced(cell: Any, table: Mapping[str, str]) -> Any:
    if isinstance(cell, list):
        return [_replaced(item, table) for item in cell]
    return table.get(str(cell), cell)

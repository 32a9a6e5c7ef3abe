"""Tables of a page: of words and numbers, of facts, and one whose cells are coloured by how much they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from ernie.report.page import scrolling

_HUE, _PALEST, _STRONGEST = "224 117 26", 0.06, 0.65  # laid over the page's own colour, light or dark


class Cell(NamedTuple):
    """A text with a smaller one under it; `shade` from 0 to 1 colours it, None leaves it as it is.

    A `long` one may be broken into lines.
    """

    text: str
    small: str = ""
    shade: float | None = None
    long: bool = False


def table(name: str, rows: Sequence[Sequence[str]]) -> str:
    """A table whose first row is its head and whose first column names the rows; `name` is for those who hear it."""
    return scrolling(_table([[Cell(text) for text in row] for row in rows]), name)


def text_table(name: str, rows: Sequence[Sequence[str]], texts: int) -> str:
    """A table whose last columns, `texts` of them, hold sentences: these are broken into lines."""
    plain = [[Cell(text) for text in row[:-texts]] for row in rows]
    long = [[Cell(text, long=True) for text in row[-texts:]] for row in rows]
    return scrolling(_table([[*a, *b] for a, b in zip(plain, long, strict=True)]), name)


def heat_table(name: str, rows: Sequence[Sequence[Cell]]) -> str:
    """A table whose cells have colours: the stronger, the nearer their shade is to 1."""
    return scrolling(_table(rows), name, "wide heat")


def facts(pairs: Mapping[str, str]) -> str:
    """Names and what they are, one pair a line."""
    rows = "".join(f"<tr>{_head(Cell(name), 'row')}{_cell(Cell(text))}</tr>" for name, text in pairs.items())
    return f'<div class="facts"><table><tbody>{rows}</tbody></table></div>'


def _table(rows: Sequence[Sequence[Cell]]) -> str:
    head, *body = rows
    heads = "".join(_head(cell, "col") for cell in head)
    lines = "".join(f"<tr>{_head(row[0], 'row')}{''.join(map(_cell, row[1:]))}</tr>" for row in body)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{lines}</tbody></table>"


def _head(cell: Cell, scope: str) -> str:
    return f'<th scope="{scope}">{_content(cell)}</th>'


def _cell(cell: Cell) -> str:
    if cell.shade is None:
        return f"<td{' class=long' if cell.long else ''}>{_content(cell)}</td>"
    strength = _PALEST + (_STRONGEST - _PALEST) * cell.shade
    return f'<td style="background:rgb({_HUE}/{strength:.2f})">{_content(cell)}</td>'


def _content(cell: Cell) -> str:
    # A name of several words may be broken where they meet.
    text = escape(cell.text).replace("_", "_<wbr>")
    return f"{text}<small>{escape(cell.small)}</small>" if cell.small else text

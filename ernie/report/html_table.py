"""HTML tables: plain tables, name-value tables, and heat maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from ernie.report.page import scrolling

_HUE, _PALEST, _STRONGEST = "224 117 26", 0.06, 0.65  # blended with the page's background, light or dark


class Cell(NamedTuple):
    """A cell: a text with a smaller one below; `shade` from 0 to 1 colors it, None leaves it uncolored.

    The text of a `long` cell may wrap.
    """

    text: str
    small: str = ""
    shade: float | None = None
    long: bool = False


def table(name: str, rows: Sequence[Sequence[str]]) -> str:
    """Return a table whose first row and column are headers; `name` is its label for screen readers."""
    return scrolling(_table([[Cell(text) for text in row] for row in rows]), name)


def text_table(name: str, rows: Sequence[Sequence[str]], texts: int) -> str:
    """Return a table whose last `texts` columns hold sentences, which may wrap."""
    plain = [[Cell(text) for text in row[:-texts]] for row in rows]
    long = [[Cell(text, long=True) for text in row[-texts:]] for row in rows]
    return scrolling(_table([[*a, *b] for a, b in zip(plain, long, strict=True)]), name)


def heat_table(name: str, rows: Sequence[Sequence[Cell]]) -> str:
    """Return a table whose cells are colored by their shade, most intensely at 1."""
    return scrolling(_table(rows), name, "wide heat")


def bar_table(name: str, rows: Sequence[Sequence[str]], shares: Sequence[float]) -> str:
    """Return a table with a bar in each row but the header: the longest one is as wide as its column."""
    longest = max([*shares, 1e-12])
    head, *body = rows
    heads = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    lines = [
        f"<tr>{_head(Cell(row[0]), 'row')}{''.join(_cell(Cell(text)) for text in row[1:])}"
        f'<td class="bar"><i style="width:{100 * share / longest:.1f}%"></i></td></tr>'
        for row, share in zip(body, shares, strict=True)
    ]
    table = f"<table><thead><tr>{heads}<td></td></tr></thead><tbody>{''.join(lines)}</tbody></table>"
    return scrolling(table, name, "wide bars")


def facts(pairs: Mapping[str, str]) -> str:
    """Return a table of names and values, one pair per row."""
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
    # Names may wrap after an underscore.
    text = escape(cell.text).replace("_", "_<wbr>")
    return f"{text}<small>{escape(cell.small)}</small>" if cell.small else text

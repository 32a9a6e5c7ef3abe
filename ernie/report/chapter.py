"""The figures of a report, each with a note on how to read it."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path
from typing import NamedTuple

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

from ernie.atomic import replacing
from ernie.report import page
from ernie.report.panels import DPI, grid

_COLORS = 128  # a figure has two hues and grays: with a palette its file is less than half the size


class Chapter(NamedTuple):
    """A figure, its file name, title, and a note on how to read it.

    `instead` is HTML that replaces the figure on the page.
    """

    name: str
    title: str
    note: str
    figure: Figure
    instead: str = ""


def write_chapters(chapters: Iterable[Chapter], folder: Path | None) -> list[str]:
    """Save each figure as a PNG in `folder`, unless that is None, and return the chapters as sections of a page.

    On the page, panels are side by side where space permits, and stacked on a phone.  Call it inside `panels.style()`,
    which figures need both when they are created and when they are drawn.
    """
    sections = []
    for chapter in chapters:
        drawn = _draw(chapter.figure)
        if folder is not None:
            with replacing(folder / f"{chapter.name}.png") as partial:
                partial.write_bytes(_png(drawn))
        shown = chapter.instead or _pictures(chapter, drawn)
        sections.append(page.section(chapter.title, chapter.note, shown))
    return sections


def _pictures(chapter: Chapter, drawn: Image.Image) -> str:
    labels = [str(axes.get_label()) for axes in chapter.figure.axes if axes.get_label()]
    if not labels:
        return page.scrolling(_picture(drawn, chapter.title), chapter.title)
    tiles = zip(_tiles(drawn, len(labels)), labels, strict=True)
    return f'<div class="panels">{"".join(_picture(tile, text) for tile, text in tiles)}</div>'


def _tiles(drawn: Image.Image, count: int) -> Iterator[Image.Image]:
    """Split a figure into its panels."""
    rows, columns = grid(count)
    height, width = drawn.height / rows, drawn.width / columns
    for index in range(count):
        row, column = divmod(index, columns)
        top, left = round(row * height), round(column * width)
        yield drawn.crop((left, top, round((column + 1) * width), round((row + 1) * height)))


def _picture(drawn: Image.Image, alt: str) -> str:
    data = base64.b64encode(_png(drawn)).decode("ascii")
    size = f'width="{drawn.width * 100 // DPI}" height="{drawn.height * 100 // DPI}"'  # at 100 pixels an inch
    return f'<img alt="{escape(alt)}" {size} src="data:image/png;base64,{data}">'


def _draw(figure: Figure) -> Image.Image:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())[..., :3]
    return Image.fromarray(pixels).quantize(_COLORS, method=Image.Quantize.MAXCOVERAGE)


def _png(drawn: Image.Image) -> bytes:
    file = io.BytesIO()
    # Without `optimize`, which saves a tenth of the size but takes seven times as long.
    drawn.save(file, format="png", dpi=(DPI, DPI))
    return file.getvalue()

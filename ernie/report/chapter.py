"""The figures of a report, each with the sentence that says how to read it."""

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

from ernie.report import page
from ernie.report.panels import DPI, grid

_COLOURS = 128  # a figure has two hues and greys: as a palette its file has less than half the size


class Chapter(NamedTuple):
    """A figure, the name of its file, its title, and how to read it.

    `instead` is HTML that says on the page what the figure says, and better.
    """

    name: str
    title: str
    note: str
    figure: Figure
    instead: str = ""


def write_chapters(chapters: Iterable[Chapter], folder: Path) -> list[str]:
    """Save each figure as a PNG in `folder`, and return the chapters as sections of a page.

    On the page panels stand side by side where there is room, one below another on a phone.  Call it inside
    `panels.style()`, which figures need both when they are made and when they are drawn.
    """
    sections = []
    for chapter in chapters:
        pixels = _draw(chapter.figure)
        (folder / f"{chapter.name}.png").write_bytes(_png(pixels))
        shown = chapter.instead or _pictures(chapter, pixels)
        sections.append(page.section(chapter.title, chapter.note, shown))
    return sections


def _pictures(chapter: Chapter, pixels: np.ndarray) -> str:
    said = [str(axes.get_label()) for axes in chapter.figure.axes if axes.get_label()]
    if not said:
        return page.scrolling(_picture(pixels, chapter.title), chapter.title)
    tiles = zip(_tiles(pixels, len(said)), said, strict=True)
    return f'<div class="panels">{"".join(_picture(tile, text) for tile, text in tiles)}</div>'


def _tiles(pixels: np.ndarray, count: int) -> Iterator[np.ndarray]:
    """Cut a figure (H, W, 3) into its panels."""
    rows, columns = grid(count)
    high, wide = pixels.shape[0] / rows, pixels.shape[1] / columns
    for index in range(count):
        row, column = divmod(index, columns)
        top, left = round(row * high), round(column * wide)
        yield pixels[top : round((row + 1) * high), left : round((column + 1) * wide)]


def _picture(pixels: np.ndarray, alt: str) -> str:
    data = base64.b64encode(_png(pixels)).decode("ascii")
    height, width = pixels.shape[:2]
    size = f'width="{width * 100 // DPI}" height="{height * 100 // DPI}"'  # at 100 pixels an inch
    return f'<img alt="{escape(alt)}" {size} src="data:image/png;base64,{data}">'


def _draw(figure: Figure) -> np.ndarray:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3]


def _png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).quantize(_COLOURS, method=Image.Quantize.MAXCOVERAGE).save(
        file, format="png", optimize=True, dpi=(DPI, DPI)
    )
    return file.getvalue()

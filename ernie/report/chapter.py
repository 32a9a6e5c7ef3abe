"""The figures of a report, each with the sentence that says how to read it."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure

from ernie.report import page


class Chapter(NamedTuple):
    """A figure, the name of its file, its title, and how to read it."""

    name: str
    title: str
    note: str
    figure: Figure


def write_chapters(chapters: Iterable[Chapter], folder: Path) -> list[str]:
    """Save each figure as a PNG in `folder`, and return the chapters as sections of a page.

    Call it inside `panels.style()`, which figures need both when they are made and when they are saved.
    """
    sections = []
    for chapter in chapters:
        png = _png(chapter.figure)
        (folder / f"{chapter.name}.png").write_bytes(png)
        sections.append(page.section(chapter.title, chapter.note, page.picture(png, chapter.title)))
    return sections


def _png(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()

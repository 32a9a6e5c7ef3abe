"""The page of a report: self-contained, accessible, and with figures split into panels."""

from __future__ import annotations

import base64
import io
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from ernie.report import page
from ernie.report.chapter import Chapter, write_chapters
from ernie.report.html_table import Cell, facts, heat_table, table
from ernie.report.panels import Label, count_axis, grid, margin_labels, panels, style
from pretrain.report.write import origin_section

VOID = {"img", "meta", "wbr"}


class Elements(HTMLParser):
    """The elements of a page in order; fails if they are not properly nested."""

    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


def chapter(count: int) -> Chapter:
    figure, axes_of_panels = panels([f"task {i}" for i in range(count)], 1.0)
    for i, axes in enumerate(axes_of_panels):
        axes.plot([0, 10], [0, i])
        count_axis(axes, 0, 10, "epoch")
        margin_labels(axes, [Label(i, f"at {i}"), Label(0, "floor")])
    return Chapter("losses", "Losses", "How to read it.", figure)


def decoded(image: dict[str, str | None]) -> Image.Image:
    data = (image["src"] or "").removeprefix("data:image/png;base64,")
    return Image.open(io.BytesIO(base64.b64decode(data))).convert("RGB")


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_panels_of_a_page_are_cut_from_the_file_and_have_alt_texts(tmp_path: Path, count: int) -> None:
    with style():
        [section] = write_chapters([chapter(count)], tmp_path)
    images = Elements(section).all("img")
    assert [image["alt"] for image in images] == [f"task {i}: at {i}, floor" for i in range(count)]
    whole = np.asarray(Image.open(tmp_path / "losses.png").convert("RGB"))
    rows, columns = grid(count)
    for index, image in enumerate(images):
        tile = np.asarray(decoded(image))
        top, left = index // columns * whole.shape[0] // rows, index % columns * whole.shape[1] // columns
        cut = whole[top : top + tile.shape[0], left : left + tile.shape[1]]
        assert (cut == tile).all()


def test_html_can_replace_a_figure_on_the_page_but_the_file_is_written(tmp_path: Path) -> None:
    with style():
        [section] = write_chapters([chapter(2)._replace(instead="<p>in words</p>")], tmp_path)
    assert "in words" in section
    assert Elements(section).all("img") == []
    assert (tmp_path / "losses.png").is_file()


def test_a_page_declares_its_language_and_has_one_title_and_no_script() -> None:
    text = page.page("<run> & co", "finished", [page.section("First", "Note.", table("Rows", [["a"], ["<b>"]]))])
    elements = Elements(text)
    assert elements.all("html") == [{"lang": "en"}]
    assert len(elements.all("h1")) == len(elements.all("main")) == 1
    assert not {"script", "link", "b", "run"} & {name for name, _ in elements.found}
    assert "url(" not in text
    assert "&lt;run&gt; &amp; co" in text


def test_a_table_has_row_and_column_headers_and_scrolls_with_the_keyboard() -> None:
    elements = Elements(table("Tasks", [["task", "loss"], ["masking", "0.5"], ["order", "0.7"]]))
    assert [head["scope"] for head in elements.all("th")] == ["col", "col", "row", "row"]
    assert elements.all("div") == [{"class": "wide", "role": "region", "tabindex": "0", "aria-label": "Tasks"}]


def test_a_long_name_can_break_between_words() -> None:
    assert "sentence_<wbr>order" in table("Tasks", [["sentence_order"]])


def test_facts_are_pairs_without_a_header() -> None:
    assert [head["scope"] for head in Elements(facts({"python": "3.12", "numpy": "2.4"})).all("th")] == ["row", "row"]


def test_a_command_is_shown_without_the_folder_of_the_program() -> None:
    origin: dict[str, Any] = {
        "command": ["/opt/somewhere/ernie", "pretrain", "my run.yaml"],
        "commit": None,
        "versions": {},
    }
    text = origin_section({**origin, "machine": "Linux"})
    assert "ernie pretrain &#x27;my run.yaml&#x27;" in text
    assert "somewhere" not in text
    assert "an installed library" in text
    assert "resumed" not in text


def test_resumes_are_counted_and_those_with_another_configuration_shown() -> None:
    origin: dict[str, Any] = {"command": ["ernie", "pretrain", "a.yaml"], "commit": "c", "versions": {}, "machine": "m"}
    same = {"command": ["ernie", "pretrain", "a.yaml"], "changed": []}
    other = {"command": ["/opt/ernie", "pretrain", "b.yaml"], "changed": ["tasks", "schedule"]}
    text = origin_section({**origin, "resumed": [same, other]})
    assert "2 times" in text
    assert "resumed with another tasks, schedule" in text
    assert "ernie pretrain b.yaml" in text


Color = tuple[float, float, float]


def contrast(first: Color, second: Color) -> float:
    """The contrast of two colors, as the Web Content Accessibility Guidelines 2 define it."""

    def luminance(color: Color) -> float:
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


def themes() -> list[dict[str, Color]]:
    """The colors of the page by name: of the light and of the dark theme."""
    found = re.findall(r":root \{([^}]*)\}", page.page("", "", []))
    assert len(found) == 2
    return [
        {name: color(value) for name, value in re.findall(r"--(\w+): #(\w+)", declarations)} for declarations in found
    ]


def color(text: str) -> Color:
    digits = text if len(text) == 6 else "".join(letter * 2 for letter in text)
    return tuple(int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4))  # type: ignore[return-value]


@pytest.mark.parametrize("theme", themes(), ids=["light", "dark"])
def test_text_has_enough_contrast_even_on_the_strongest_cell(theme: dict[str, Color]) -> None:
    assert contrast(theme["ink"], theme["paper"]) > 7
    assert contrast(theme["muted"], theme["paper"]) > 4.5
    [(red, green, blue, strength)] = re.findall(
        r"rgb\((\d+) (\d+) (\d+)/([\d.]+)\)", heat_table("", [[Cell("")], [Cell(""), Cell("1", shade=1.0)]])
    )
    alpha = float(strength)
    cell = [
        alpha * int(part) / 255 + (1 - alpha) * background
        for part, background in zip((red, green, blue), theme["paper"], strict=True)
    ]
    assert contrast(theme["ink"], tuple(cell)) > 4.5  # type: ignore[arg-type]


def test_the_strength_of_a_cell_grows_with_its_shade_and_is_omitted_without_one() -> None:
    row = [Cell("row"), *(Cell("x", shade=shade) for shade in (0.0, 0.5, 1.0)), Cell("", "small")]
    text = heat_table("Heat", [[Cell("head")], row])
    strengths = [float(value) for value in re.findall(r"/([\d.]+)\)", text)]
    assert strengths == sorted(strengths)
    assert len(set(strengths)) == 3
    assert "<td><small>small</small></td>" in text

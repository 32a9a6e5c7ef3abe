"""The report of a replayed step: one page with its figures and tables, and the same as data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from ernie.atomic import disk_guard, make_folder, put_text
from ernie.errors import UserError
from ernie.json_file import read_json
from ernie.replay.layers import Layer, layers, rows
from ernie.replay.reading import KEYS, Reading
from ernie.report import page
from ernie.report.chapter import Chapter, write_chapters
from ernie.report.html_table import facts, table
from ernie.report.panels import BLUE, MUTED, VERMILION, Label, count_axis, logarithmic, margin_labels, panels, style

_HEIGHT = 1.25  # inches of a panel
_MOST_ROWS = 3000  # of the table of all tensors
_KEYS = {"step": int, "readings": [KEYS]}
_REMEDY = "Such files are written by `ernie replay`, beside its pages."


@dataclass(frozen=True)
class Story:
    """What is told about a step (from 1) of a run: sentences, named facts, tables of samples, and its readings."""

    run: Path
    step: int
    state: str
    lines: Sequence[str]
    facts: Mapping[str, str]
    samples: Sequence[Sequence[str]]
    readings: Sequence[Reading]

    def as_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "run": str(self.run),
            "step": self.step,
            "lines": list(self.lines),
            "samples": [list(row) for row in self.samples],
            "readings": [reading.as_dict() for reading in self.readings],
        }


def write_report(story: Story, output: Path) -> Path:
    """Write the page `output`, and the same as data in a JSON file of its name; return the path of the page."""
    make_folder(output.parent)
    with style():
        sections = write_chapters(_chapters(layers(story.readings)), None)
    with disk_guard(output, "the report was not written"):
        put_text(output.with_suffix(".json"), json.dumps(story.as_dict()) + "\n")
        put_text(output, _page(story, sections))
    return output


def read_readings(file: Path, step: int) -> list[Reading]:
    """Read the readings of a step (from 1) that `write_report` has written.

    Raises UserError if the file is damaged, or is of another step.
    """
    record = read_json(file, _KEYS, _REMEDY)
    if record["step"] != step:
        raise UserError(f"{file}: is a replay of step {record['step']:,}, not of step {step:,}")
    return [Reading.from_dict(reading) for reading in record["readings"]]


def _page(story: Story, sections: Sequence[str]) -> str:
    parts = [*(page.paragraph(line) for line in story.lines), facts(story.facts), *sections]
    title, note = "Layers", "Outputs and their gradients over all micro-batches; weights ahead of the step."
    parts.append(page.section(title, note, table(title, rows(layers(story.readings)))))
    if len(story.samples) > 1:
        title, note = "Samples", "Each by itself, without dropout, with the weights ahead of the step."
        parts.append(page.section(title, note, table(title, story.samples)))
    parts.append(page.folded("Every tensor, in the order of computation", _listing(story.readings)))
    return page.page(f"Step {story.step:,} of {story.run.resolve().name}", story.state, parts)


def _listing(readings: Sequence[Reading]) -> str:
    lines = [
        f"{reading.rms:<12.5g} {reading.largest:<12.5g} {reading.not_finite:<10,} {reading.digest}  {reading.place}"
        for reading in readings[:_MOST_ROWS]
    ]
    more = [f"and {len(readings) - _MOST_ROWS:,} more"] * (len(readings) > _MOST_ROWS)
    return "\n".join([f"{'rms':<12} {'largest':<12} {'not finite':<10} {'digest':<16}  tensor", *lines, *more])


def _chapters(found: Sequence[Layer]) -> Iterator[Chapter]:
    note = "From the embeddings at the left to the heads at the right, in the order of the table below."
    outputs = {
        "outputs, root mean square": [layer.rms for layer in found],
        "outputs, largest value": [layer.largest("output") for layer in found],
    }
    yield Chapter("outputs", "Outputs", note, _draw(outputs, found))
    gradients = {
        "gradient of outputs, norm": [layer.norm("output gradient") for layer in found],
        "gradient of weights, norm": [layer.norm("sum") for layer in found],
    }
    yield Chapter("gradients", "Gradients", note, _draw(gradients, found))
    updates = {
        "update to weights": [layer.ratio for layer in found],
        "values that are not finite": [layer.not_finite for layer in found],
    }
    note = "The norm of the update over that of the weights: usually about a thousandth of the weights or less."
    yield Chapter("updates", "Updates and values that are not finite", note, _draw(updates, found))


def _draw(curves: Mapping[str, Sequence[float]], found: Sequence[Layer]) -> Figure:
    """Draw a panel for each curve over the layers; those with values that are not finite are vermilion."""
    figure, panes = panels(list(curves), _HEIGHT)
    bad = np.array([layer.not_finite > 0 for layer in found], bool)
    for axes, values in zip(panes, curves.values(), strict=True):
        numbers = np.array(values, float)
        places = np.arange(len(numbers))
        kept = np.isfinite(numbers)
        axes.plot(places[kept], numbers[kept], "o-", color=BLUE, markersize=4, linewidth=1.2, clip_on=False)
        axes.plot(places[kept & bad], numbers[kept & bad], "o", color=VERMILION, markersize=5, clip_on=False)
        count_axis(axes, 0, max(1, len(numbers) - 1), "layer")
        if not kept.any():
            axes.set_yticks([])
            axes.annotate("no finite value", (0.5, 0.5), xycoords="axes fraction", ha="center", color=MUTED)
        elif not logarithmic(axes, numbers[kept]):
            peak = float(numbers[kept].max())
            margin_labels(axes, [Label(peak, f"{peak:.3g}", BLUE, bold=True)])
    return figure

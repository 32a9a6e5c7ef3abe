"""Draw the figures of benchmarks/results/*.md from the records, without training.

python benchmarks/figures.py [--records benchmarks/records] [--output benchmarks/figures]
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence import FOUR, MASKED, OTHERS
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter
from page_tables import SIDES
from plateau import ARMS
from record_files import TUNED, read_records_of, slug
from time_to_quality import parts

from ernie.report.panels import (
    BLUE,
    FAINT,
    INK,
    MUTED,
    NORMAL,
    SMALL,
    VERMILION,
    WIDTH,
    Label,
    margin_labels,
    panels,
    style,
)
from ernie.report.panels import DPI as PANELS_DPI
from pretrain.scaling import draw as scaling
from pretrain.scaling.answer import curve
from pretrain.scaling.points import read_table

DPI = 110  # pixels per inch: twice the width of a page of text
MINUTES, PARTS = 60, 6  # of time_to_quality.py

# Color and margin label of each arm of time_to_quality.py.
_LOOKS = {
    "transformers": (INK, "BERT, 1e-4"),
    "transformers-2e-4": (INK, "BERT, 2e-4"),
    "masked": (MUTED, "masked words"),
    "continual": (MUTED, "continual"),
    "masked-beta2": (BLUE, "masked, 0.999"),
    "continual-moments": (VERMILION, "cont., moments"),
}


@dataclass(frozen=True)
class Point:
    """An arm after some minutes: the mean of five dev scores for each seed fine-tuned with dropout, and the loss of
    hidden words for each seed."""

    minutes: float
    scores: list[float]
    losses: list[float]


def main() -> None:
    """Draw all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = Path(__file__).parent
    parser.add_argument("--records", type=Path, default=here / "records")
    parser.add_argument("--output", type=Path, default=here / "figures")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    records = arguments.records
    evidence = records / "evidence"
    with style():
        figures = {
            "time-to-quality": time_to_quality(records / "quality" / f"minutes-{MINUTES}"),
            "forgetting": forgetting(evidence / "ablation-800"),
            "each-task": each_task(evidence / "tasks-1600", evidence / "tasks-1600-moments-each_task"),
            "plateau": plateau(records / "plateau" / "steps-3000"),
        }
        if (served := serving(records / "serving")) is not None:
            figures["serving"] = served
        for name, figure in figures.items():
            figure.savefig(arguments.output / f"{name}.png", dpi=DPI)
    scaling.draw(curve(read_table(records / "ladder" / "points.tsv")), arguments.output / "scaling.png")
    print(*sorted(arguments.output.glob("*.png")), sep="\n")


def points(folders: dict[int, Path], arm: str) -> dict[int, Point]:
    """The recorded points of an arm, by part."""
    by_part = {number: records for number, folder in folders.items() if (records := read_records_of(folder, arm))}
    return {
        number: Point(
            records[0]["minutes"],
            [statistics.mean(record[TUNED]) for record in records if TUNED in record],
            [record["hidden words"]["loss"] for record in records],
        )
        for number, records in by_part.items()
    }


def time_to_quality(records: Path) -> Figure:
    """Draw the loss of hidden words and dev scores against minutes: each seed, and a line through the means."""
    folders = parts(records, PARTS)
    curves = {arm: points(folders, arm) for arm in _LOOKS}
    figure, [loss, scores] = panels(
        ["loss of hidden words against minutes", "mean of five dev scores against minutes"], 2.6
    )
    _curves(loss, curves, lambda point: point.losses)
    _curves(scores, curves, lambda point: point.scores)
    scores.yaxis.set_major_formatter(PercentFormatter(1))
    return figure


def _curves(axes: Axes, curves: dict[str, dict[int, Point]], of: Callable[[Point], list[float]]) -> None:
    labels = []
    for arm, by_part in curves.items():
        color, name = _LOOKS[arm]
        line = [point for _, point in sorted(by_part.items()) if of(point)]
        if not line:
            continue
        minutes, means = [point.minutes for point in line], [statistics.mean(of(point)) for point in line]
        axes.plot(minutes, means, color=color, lw=1.4)
        for point in line:
            axes.plot([point.minutes] * len(of(point)), of(point), "o", color=color, ms=3)
        labels.append(Label(means[-1], name, color))
    axes.set_xlim(0, MINUTES)
    margin_labels(axes, labels)


def forgetting(records: Path) -> Figure:
    """Draw the scores of two tasks of the ablation after each stage, seed by seed."""
    titles = {
        MASKED: "accuracy of masked tokens after each stage",
        "capitalization": "F1 of capitalization after each stage",
    }
    figure, panes = panels(list(titles.values()), 2.0)
    colors = {"sequential": VERMILION, "continual": BLUE, "joint": INK}
    for axes, task in zip(panes, titles, strict=True):
        labels = []
        for schedule, color in colors.items():
            of_schedule = read_records_of(records, schedule)
            of_seeds = [[score["value"] for score in record["measured"][task]] for record in of_schedule]
            for values in of_seeds:
                stages = range(len(FOUR) - len(values) + 1, len(FOUR) + 1)  # the last ones
                axes.plot(stages, values, color=color, lw=1.2, marker="o", ms=3)
            labels.append(Label(statistics.mean(values[-1] for values in of_seeds), schedule, color))
        axes.set_xlim(0.9, len(FOUR) + 0.1)
        axes.set_xticks(range(1, len(FOUR) + 1))
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        margin_labels(axes, labels)
    return figure


def each_task(records: Path, apart: Path) -> Figure:
    """Draw each added task's held-out score beside baselines without an encoder: seed by seed, with intervals.

    `apart` holds the records of runs with separate AdamW moments for each task.
    """
    figure, axes = _rows("held-out score of each task added to masked words, 95 % interval", list(OTHERS), 0.5)
    for row, task in enumerate(OTHERS):
        runs = [(record, INK) for record in read_records_of(records, task)]
        runs += [(record, BLUE) for record in read_records_of(apart, task)]
        for number, (record, color) in enumerate(runs):
            score, height = record["measured"][task][-1], row + 0.15 * (number - (len(runs) - 1) / 2)
            axes.plot([score["low"], score["high"]], [height] * 2, color=color, lw=1.4)
            axes.plot(score["value"], height, "o", color=color, ms=3.5)
            axes.plot(score["majority"], height, "|", color=MUTED, ms=6)
            axes.plot(record["counting tokens"], height, "|", color=VERMILION, ms=6)
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    _legend(
        axes,
        [
            ("shared moments", INK),
            ("moments for each task", BLUE),
            ("majority baseline", MUTED),
            ("token counts", VERMILION),
        ],
    )
    return figure


def plateau(records: Path) -> Figure:
    """Draw the held-out loss of each arm of plateau.py, seed by seed."""
    by_arm = {
        arm: losses for arm in ARMS if (losses := [record["loss"] for record in read_records_of(records, slug(arm))])
    }
    figure, axes = _rows("loss of hidden words after 3,000 steps", list(by_arm), 0.26)
    for row, losses in enumerate(by_arm.values()):
        axes.plot(losses, [row] * len(losses), "o", color=BLUE, ms=4)
    return figure


def serving(records: Path) -> Figure | None:
    """Draw latencies and batches against the load of each side, and a chunk's latency against sessions.

    Without a record there is no panel.
    """
    drawn = {
        "classify": ("texts classified, p99 in ms against requests/s", _latencies),
        "embed": ("vectors of MiniLM, p99 in ms against requests/s", _latencies),
        "classify ": ("texts in a batch against requests/s", _batches),
        "recognition": ("a chunk of sound, p99 in ms against sessions", _sessions),
    }
    found = {arm: of_arm[0] for arm in drawn if (of_arm := read_records_of(records, arm.strip()))}
    if not found:
        return None
    figure, panes = panels([drawn[arm][0] for arm in found], 2.0)
    for axes, (arm, record) in zip(panes, found.items(), strict=True):
        drawn[arm][1](axes, record)
    return figure


_SIDE_LOOKS = {
    "ours": (BLUE, "-"),
    "together": (BLUE, "-"),
    "one by one": (VERMILION, "-"),
    "infinity": (VERMILION, "-"),
    "sherpa": (INK, "-"),
    "mosec": (VERMILION, "-"),
    "ray": (INK, "-"),
    "litserve": (MUTED, "-"),
    "bentoml": (MUTED, "--"),
    "pytriton": (INK, "--"),
}


def _latencies(axes: Axes, record: dict[str, Any]) -> None:
    sides = {
        side: {
            float(rate): statistics.median(latencies)
            for rate, turns in tried.items()
            if (latencies := [turn["p99"] for turn in turns if "p99" in turn])
        }
        for side, tried in record["sides"].items()
    }
    _logarithmic(axes, sides)


def _sessions(axes: Axes, record: dict[str, Any]) -> None:
    sides = {
        side: {float(count): at["p99"] for count, at in found["counts"].items() if at["p99"] is not None}
        for side, found in record["sides"].items()
    }
    _logarithmic(axes, sides)


def _logarithmic(axes: Axes, sides: dict[str, dict[float, float]]) -> None:
    """Draw a line for each side on a logarithmic axis of milliseconds, and the bound of 100 ms."""
    axes.set_yscale("log")
    axes.axhline(100, color=FAINT, lw=2, zorder=0)
    labels = []
    for side, points in sides.items():
        color, dashes = _SIDE_LOOKS[side]
        xs, ys = zip(*sorted(points.items()), strict=True)
        axes.plot(xs, ys, dashes, color=color, lw=1.4, marker="o", ms=3)
        labels.append((ys[-1], SIDES.get(side, side).partition(",")[0], color))
    low, high = (max(1.0, axes.get_ylim()[0]), axes.get_ylim()[1])
    axes.set_ylim(low, high)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5), numticks=12))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    # The heights of labels are fractions of a linear axis.
    at = [(math.log(y / low) / math.log(high / low) * (high - low) + low, text, color) for y, text, color in labels]
    margin_labels(axes, [Label(y, text, color) for y, text, color in at])


def _batches(axes: Axes, record: dict[str, Any]) -> None:
    tried = record["sides"]["ours"]
    points = sorted(
        (float(rate), statistics.median(turn["texts a batch"] for turn in own)) for rate, own in tried.items()
    )
    axes.plot(*zip(*points, strict=True), color=BLUE, lw=1.4, marker="o", ms=3)
    axes.axvline(record["capacity"], color=FAINT, lw=2, zorder=0)
    axes.set_ylim(bottom=0)
    margin_labels(axes, [Label(points[-1][1], "ours", BLUE)])


def _rows(title: str, names: Sequence[str], height: float) -> tuple[Figure, Axes]:
    """A figure with one row per name, from the top down; `height` is that of a row in inches."""
    inner, left, top, bottom, right = height * len(names), 1.9, 0.5, 0.36, 1.9
    outer = inner + top + bottom
    figure = Figure(figsize=(WIDTH, outer), dpi=PANELS_DPI)
    axes = figure.add_axes((left / WIDTH, bottom / outer, (WIDTH - left - right) / WIDTH, inner / outer))
    axes.set_title(title, loc="left", pad=14, size=NORMAL, weight="bold")
    axes.grid(axis="x", color=FAINT, linewidth=0.5)
    axes.set_axisbelow(True)
    axes.set_yticks(range(len(names)), [name.replace("_", " ") for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    return figure, axes


def _legend(axes: Axes, texts: Sequence[tuple[str, str]]) -> None:
    """Write the legend of the colors into the right margin."""
    for number, (text, color) in enumerate(texts):
        axes.annotate(
            text,
            (1, 1),
            (14, -10 - 14 * number),
            xycoords="axes fraction",
            textcoords="offset points",
            color=color,
            size=SMALL,
        )


if __name__ == "__main__":
    main()

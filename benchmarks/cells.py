"""Cells of tables: shares in percent, spreads over seeds, intervals; and tables in Markdown."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Rows = list[list[str]]  # header first


def markdown(rows: Rows) -> str:
    """A table in Markdown; a header with a blank first cell or none at all is fine."""
    header, *body = rows
    lines = [header, ["---"] * len(header), *body]
    return "".join("|" + "|".join(f" {cell} " if cell != "---" else cell for cell in line) + "|\n" for line in lines)


def percent(value: float) -> str:
    """A share in percent, with a tenth of a point."""
    return f"{100 * value:.1f} %"


def spread(values: Sequence[float], shown: Callable[[float], str] = percent) -> str:
    """The median and, of several values, the lowest and the highest."""
    median = shown(statistics.median(values))
    if len(values) == 1:
        return median
    low, high = (shown(value).removesuffix(" %") for value in (min(values), max(values)))
    return f"{median} ({low} to {high})"


def listed(values: Sequence[float], shown: Callable[[float], str] = percent) -> str:
    """The values seed by seed; nothing if there are none."""
    cells = [shown(value) for value in values] or [""]
    return ", ".join([*(cell.removesuffix(" %") for cell in cells[:-1]), cells[-1]])


def interval(score: Mapping[str, Any]) -> str:
    """A score with its 95 % interval."""
    return f"{percent(score['value'])} ({100 * score['low']:.1f} to {100 * score['high']:.1f})"


def decimals(count: int) -> Callable[[float], str]:
    """A function that shows so many decimals."""
    return lambda value: f"{value:.{count}f}"


def standard_error(*samples: Sequence[float]) -> float:
    """The standard error of the difference of the means of samples that are independent of each other."""
    return math.sqrt(sum(statistics.variance(sample) / len(sample) for sample in samples if len(sample) > 1))

"""Curves of any length, for instance a hundred thousand steps in four hundred pixels.

Legend: S steps, B bins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ernie.report.panels import BLUE, SMALL, say

_BINS = 400  # about a panel's width in pixels
_SMOOTHING, _LEAST = 1 / 40, 9  # the smoothing window as a fraction of a curve's points, and its minimum


def line(axes: Axes, steps: np.ndarray, values: np.ndarray) -> None:
    """Draw values (S,) over steps (S,) without smoothing; a single value as a dot."""
    marker = "o" if len(steps) == 1 else ""
    axes.plot(steps, values, color=BLUE, linewidth=1.6, marker=marker, markersize=4, clip_on=not marker)


def curve(axes: Axes, steps: np.ndarray, values: np.ndarray, stages: np.ndarray) -> tuple[float, float]:
    """Draw values (S,) over steps (S,): a smoothed line over a band with the range of the values.

    The line is interrupted where entire stages have no values.  NaN values are left out.  Returns the end point of the
    smoothed line, NaN if there is none.
    """
    kept = np.isfinite(values)
    steps, values, stages = steps[kept], values[kept], stages[kept]
    end = (float("nan"), float("nan"))
    for piece in np.split(np.arange(len(steps)), np.flatnonzero(np.diff(stages) > 1) + 1):
        if not len(piece):
            continue
        middle, low, high = binned(steps[piece], values[piece])
        # The edge keeps the band visible as a line where each bin has one value.
        axes.fill_between(middle, low, high, color=BLUE, alpha=0.22, linewidth=0.7)
        smooth = smoothed(values[piece], max(round(len(values) * _SMOOTHING), min(_LEAST, len(values) // 4)))
        middle, low, high = binned(steps[piece], smooth)
        line(axes, middle, (low + high) / 2)
        end = (float(steps[piece[-1]]), float(smooth[-1]))
    return end


def name_end(axes: Axes, end: tuple[float, float], text: str) -> None:
    """Write a text next to the end of a curve."""
    if np.isfinite(end[1]):
        box = {"facecolor": "white", "linewidth": 0, "pad": 1.0}
        look: dict[str, Any] = {"color": BLUE, "size": SMALL, "weight": "bold", "va": "center", "bbox": box}
        say(axes, [text])
        axes.annotate(text, end, (5, 0), textcoords="offset points", annotation_clip=False, **look)


def binned(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Reduce steps and values (S,) to the mean step, minimum and maximum value of each bin (B,)."""
    edges = np.unique(np.linspace(0, len(steps), min(_BINS, len(steps)), endpoint=False).astype(int))
    counts = np.diff(edges, append=len(steps))
    middle = np.add.reduceat(steps, edges) / counts
    return middle, np.minimum.reduceat(values, edges), np.maximum.reduceat(values, edges)


def smoothed(values: np.ndarray, window: int) -> np.ndarray:
    """Return the centered moving average over up to `window` values (S,), fewer at the ends."""
    reach = min(window, len(values)) // 2
    sums = np.concatenate(([0.0], np.cumsum(values)))
    places = np.arange(len(values))
    first, last = np.maximum(places - reach, 0), np.minimum(places + reach + 1, len(values))
    return (sums[last] - sums[first]) / (last - first)


def fit_y(axes: Axes, values: np.ndarray, *, from_zero: bool = False) -> None:
    """Set the y range to that of values (S,), without outliers and not below 0."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return
    low, high = np.quantile(finite, [0.002, 0.998])
    margin = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    axes.set_ylim(0 if from_zero else max(0, low - margin), high + margin)

"""A curve of any length: what a hundred thousand steps look like in four hundred pixels.

Legend: S steps, B bins.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ernie.report.panels import BLUE, SMALL, say

_BINS = 400  # about a panel's width in pixels
_SMOOTHING, _LEAST = 1 / 40, 9  # of a curve's points make one point of its smooth line; in a short one at least 9


def line(axes: Axes, steps: np.ndarray, values: np.ndarray) -> None:
    """Draw values (S,) over steps (S,) as they are; a single one as a dot."""
    marker = "o" if len(steps) == 1 else ""
    axes.plot(steps, values, color=BLUE, linewidth=1.6, marker=marker, markersize=4, clip_on=not marker)


def curve(axes: Axes, steps: np.ndarray, values: np.ndarray, stages: np.ndarray) -> tuple[float, float]:
    """Draw values (S,) over steps (S,): a smooth line over the range of what it smooths.

    The line is broken where whole stages had none of the values.  NaN are left out.  Returns where the smooth line
    ends, NaN where there is none.
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
    """Write a text beside the end of a curve."""
    if np.isfinite(end[1]):
        box = {"facecolor": "white", "linewidth": 0, "pad": 1.0}
        look: dict[str, Any] = {"color": BLUE, "size": SMALL, "weight": "bold", "va": "center", "bbox": box}
        say(axes, [text])
        axes.annotate(text, end, (5, 0), textcoords="offset points", annotation_clip=False, **look)


def binned(steps: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Steps and values (S,) -> each bin's middle step, lowest and highest value (B,), however long the run."""
    edges = np.unique(np.linspace(0, len(steps), min(_BINS, len(steps)), endpoint=False).astype(int))
    counts = np.diff(edges, append=len(steps))
    middle = np.add.reduceat(steps, edges) / counts
    return middle, np.minimum.reduceat(values, edges), np.maximum.reduceat(values, edges)


def smoothed(values: np.ndarray, window: int) -> np.ndarray:
    """The mean of up to `window` values around each of (S,); fewer at the ends, so that nothing lags."""
    reach = min(window, len(values)) // 2
    sums = np.concatenate(([0.0], np.cumsum(values)))
    places = np.arange(len(values))
    first, last = np.maximum(places - reach, 0), np.minimum(places + reach + 1, len(values))
    return (sums[last] - sums[first]) / (last - first)


def fit_y(axes: Axes, values: np.ndarray, *, from_zero: bool = False) -> None:
    """Set the range of y to that of values (S,), none below 0, with single spikes left out."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return
    low, high = np.quantile(finite, [0.002, 0.998])
    room = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    axes.set_ylim(0 if from_zero else max(0, low - room), high + room)

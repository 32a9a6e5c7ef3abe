"""Answers from a learning curve: predictions with intervals, and refusals where the runs do not support one."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from ernie.errors import UserError
from ernie.formatting import plural
from pretrain.scaling.law import Fit, Interval, fit
from pretrain.scaling.points import Point, alike, best

FAR = 100.0  # times the largest size measured: beyond that, extrapolation is a guess


@dataclass(frozen=True)
class Curve:
    """All runs, the best run of each size, the fit to all sizes but the largest (`before`), and the fit to all."""

    points: tuple[Point, ...]
    best: tuple[Point, ...]
    before: Fit
    whole: Fit

    @property
    def missed(self) -> float:
        """The relative error of predicting the largest size from the smaller ones."""
        last = self.best[-1]
        return self.before.error(last.size).value / last.error - 1

    def models(self) -> tuple[float, float] | None:
        """sigma and beta of the law sigma size^beta of the best model's weights; None where they do not change."""
        known = [point for point in self.best if point.weights]
        if len({point.weights for point in known}) < 2:
            return None
        beta, log_sigma = np.polyfit(
            np.log([point.size for point in known]), np.log([point.weights for point in known]), 1
        )
        return float(np.exp(log_sigma)), float(beta)


def curve(points: Sequence[Point]) -> Curve:
    """Fit the learning curve of some runs.

    Raises UserError when there are too few runs, their errors do not fall, or their vocabularies differ.
    """
    if len({point.tokenizer for point in points}) > 1:
        raise UserError(
            "the runs have several vocabularies, and errors in nats per token are comparable only for the same tokens. "
            "Use runs on corpora of one tokenizer"
        )
    chosen = best(points)
    sizes, errors = [point.size for point in chosen], [point.error for point in chosen]
    whole = fit(sizes, errors)
    return Curve(tuple(points), tuple(chosen), fit(sizes[:-1], errors[:-1], irreducible=len(sizes) > 4), whole)


def needed(found: Curve, error: float) -> Iterator[str]:
    """Say how much text and how large a model `error` needs, or why the runs do not support an answer."""
    law, largest = found.whole, found.best[-1].size
    size = law.size(error)
    gamma = law.parameter("gamma")
    if math.isinf(size.value):
        limit = f"what the law can reach, {gamma.value:.3f} ({gamma.low:.3f} to {gamma.high:.3f})"
        if error <= gamma.low:
            yield (
                f"an error of {error:g} lies below {limit}: more text does not lead there; another model or other "
                "text might"
            )
        else:
            least = f"; if more text does lead there, it takes at least {size.low:,.3g} tokens" if size.low else ""
            yield f"an error of {error:g} may lie below {limit}: the runs do not tell{least}"
        return
    yield f"an error of {error:g} needs {amount(size)} tokens, {size.value / largest:,.3g} times the largest size"
    models = found.models()
    if models is not None:
        sigma, beta = models
        yield f"the best model for it has about {sigma * size.value**beta / 1e6:,.1f} million weights (by {beta:.2f})"
    if math.isinf(size.high):
        yield "the interval has no upper end: the least error that the law can reach may lie above this one"
    elif size.high > 10 * size.low:
        factor = f"a factor of {size.high / size.low:,.0f}" if size.low else "any factor"
        yield f"the interval spans {factor}: measure more sizes, or more seeds"
    if size.value < found.best[0].size:
        yield (
            f"that is less text than was measured (from {found.best[0].size:,.3g} tokens on), where the law may be "
            "another"
        )
    if size.value > FAR * largest:
        yield f"that is more than {FAR:g} times what was measured: the runs do not support an answer"


@dataclass(frozen=True)
class Arrival:
    """How a run reached an error: its encoder's width and least error, and the steps and seconds it took."""

    width: int
    least: float
    steps: int
    seconds: float

    @property
    def seconds_a_step(self) -> float:
        """The average duration of a step."""
        return self.seconds / self.steps


@dataclass(frozen=True)
class Race:
    """How encoders of several widths reached a common error on the largest size, narrowest first.

    Ardalani, Hestness and Diamos, SysML 2018: a larger model needs fewer steps, each of which takes longer.
    """

    error: float
    runs: tuple[Arrival, ...]

    def rows(self) -> list[list[str]]:
        """The runs as a table, header first."""
        rows = [["width", "least error", f"steps to {self.error:.3f}", "seconds a step", "minutes to there"]]
        for run in self.runs:
            times = [f"{run.steps:,}", f"{run.seconds_a_step:.3f}", f"{run.seconds / 60:.1f}"]
            rows.append([f"{run.width}", f"{run.least:.3f}", *times])
        return rows

    def verdict(self) -> Iterator[str]:
        """Say whether wider encoders need fewer steps, and from which width on they take longer nevertheless."""
        steps = self._steps()
        yield f"steps to {self.error:.3f} {steps} with the width"
        fastest = min(self.runs, key=lambda run: run.seconds)
        text = f"the soonest there has a width of {fastest.width} and took {fastest.seconds / 60:.1f} minutes"
        if fastest is self.runs[-1]:
            yield f"{text}: no wider one was run, which might be sooner still"
        else:
            yield f"{text}: wider ones took longer"

    def _steps(self) -> str:
        """How the steps change with the width, in words."""
        widths, steps = [run.width for run in self.runs], [run.steps for run in self.runs]
        if len(set(widths)) > 2:
            with suppress(UserError):  # raised when the steps do not fall
                beta = fit(widths, steps, irreducible=False, steepest=-math.inf).parameter("beta")
                return f"change by a power of {beta.value:.2f} ({beta.low:.2f} to {beta.high:.2f})"
        return f"go from {steps[0]:,} to {steps[-1]:,}"


def race(found: Curve) -> Race | None:
    """Compare the widths on the largest size at an error that all reach; None when fewer than two have a history.

    Runs of one width count as one, with their means.
    """
    largest = found.best[-1].size
    runs = sorted(
        (point for point in found.points if point.size == largest and point.course), key=lambda point: point.width
    )
    if len({run.width for run in runs}) < 2:
        return None
    common = max(run.error for run in runs)
    arrivals = []
    for width, group in groupby(runs, key=lambda run: run.width):
        found_there = [(run.error, *(run.until(common) or run.course[-1][:2])) for run in group]
        error, steps, seconds = (statistics.mean(values) for values in zip(*found_there, strict=True))
        arrivals.append(Arrival(width, error, round(steps), seconds))
    return Race(common, tuple(arrivals))


def sizes(found: Curve) -> list[list[str]]:
    """The best run of each size as a table, header first."""
    rows = [["tokens", "width", "weights", "error", "law"]]
    for point in found.best:
        rows.append(
            [
                f"{point.size:,.0f}",
                f"{point.width}" if point.width else "",
                f"{point.weights / 1e6:.2f} million" if point.weights else "",
                f"{point.error:.4f}",
                f"{found.whole.law.error(point.size):.4f}",
            ]
        )
    return rows


def verdict(found: Curve) -> Iterator[str]:
    """Describe the law, and how well the smaller sizes predicted the largest one."""
    beta, gamma = found.whole.parameter("beta"), found.whole.parameter("gamma")
    law = found.whole.law
    yield (
        f"error = {law.alpha:.4g} x tokens^{law.beta:.3f} + {law.gamma:.3f}; exponent {beta.low:.3f} to "
        f"{beta.high:.3f}, irreducible {gamma.low:.3f} to {gamma.high:.3f}; {found.whole.explained:.1%} of the variance"
    )
    repeated = len(found.points) - len(alike(found.points))
    if repeated:
        yield f"{plural(repeated, 'run')} repeated another of the same size and encoder; the mean of such runs counts"
    last = found.best[-1]
    predicted = found.before.measured(last.size)
    yield (
        f"predicted from the sizes below for {last.size:,.0f} tokens: {predicted.value:.4f} ({predicted.low:.4f} to "
        f"{predicted.high:.4f}); measured: {last.error:.4f}, which is {abs(found.missed):.1%} off"
    )
    partial = [point for point in found.best if point.passes < 1]
    if partial:
        least = min(point.passes for point in partial)
        yield (
            f"{len(partial)} of {len(found.best)} runs have not read all of their text (the least {least:.0%} of it): "
            "their errors depend on the steps rather than on the text, and this is not a law of the text"
        )


def amount(interval: Interval) -> str:
    """Format a number of tokens with its interval."""
    low, value, high = (
        "endless" if math.isinf(x) else f"{x:,.3g}" for x in (interval.low, interval.value, interval.high)
    )
    return f"{value} ({low} to {high})"

"""What a learning curve says, and what it cannot say."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ernie.errors import UserError
from pretrain.scaling.law import Fit, Interval, fit
from pretrain.scaling.points import Point, best

FAR = 100.0  # times the largest size measured: beyond, a law is a guess


@dataclass(frozen=True)
class Curve:
    """The best runs of each size, the law of all but the largest, and the law of all."""

    points: tuple[Point, ...]
    best: tuple[Point, ...]
    before: Fit
    whole: Fit

    @property
    def missed(self) -> float:
        """How far the law of all but the largest size is from what that one came to, as a share."""
        last = self.best[-1]
        return self.before.error(last.size).value / last.error - 1

    def models(self) -> tuple[float, float] | None:
        """sigma and beta of the best model's weights, sigma size^beta; None where it does not change with the size."""
        chosen = [point for point in self.best if point.weights]
        if len({point.weights for point in chosen}) < 2:
            return None
        beta, logarithm = np.polyfit(
            np.log([point.size for point in chosen]), np.log([point.weights for point in chosen]), 1
        )
        return float(np.exp(logarithm)), float(beta)


def curve(points: Sequence[Point]) -> Curve:
    """The learning curve of some runs.

    Raises UserError when there are too few, their errors do not fall, or they are of several vocabularies.
    """
    if len({point.tokenizer for point in points}) > 1:
        raise UserError(
            "the runs have several vocabularies, and an error is one of nats a token: of other tokens it is another "
            "one. Take runs on corpora of one tokenizer"
        )
    chosen = best(points)
    sizes, errors = [point.size for point in chosen], [point.error for point in chosen]
    whole = fit(sizes, errors)
    return Curve(tuple(points), tuple(chosen), fit(sizes[:-1], errors[:-1], irreducible=len(sizes) > 4), whole)


def needed(found: Curve, error: float) -> Iterator[str]:
    """What an error needs, or why the runs do not tell."""
    law, largest = found.whole, found.best[-1].size
    size = law.size(error)
    gamma = law.parameter("gamma")
    if math.isinf(size.value):
        reached = f"what the law can reach, {gamma.value:.3f} ({gamma.low:.3f} to {gamma.high:.3f})"
        if error <= gamma.low:
            yield (
                f"an error of {error:g} lies below {reached}: more text does not lead there; another model or other "
                "text might"
            )
        else:
            least = f"; if more text does lead there, it takes at least {size.low:,.3g} tokens" if size.low else ""
            yield f"an error of {error:g} may lie below {reached}: the runs do not tell{least}"
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
    if size.value > FAR * largest:
        yield f"that is more than {FAR:g} times what was measured: the runs do not support an answer"


@dataclass(frozen=True)
class Arrival:
    """When a run came to an error: its encoder's width and least error, the steps and seconds it took."""

    width: int
    least: float
    steps: int
    seconds: float

    @property
    def seconds_a_step(self) -> float:
        """How long one of its steps took."""
        return self.seconds / self.steps


@dataclass(frozen=True)
class Race:
    """How encoders of several widths came to an error that all of them reach, on the largest size; narrow ones first.

    Ardalani, Hestness and Diamos, SysML 2018: a larger model needs fewer steps, each of which takes longer.
    """

    error: float
    runs: tuple[Arrival, ...]

    def rows(self) -> list[list[str]]:
        """The runs as a table, the head first."""
        rows = [["width", "least error", f"steps to {self.error:.3f}", "seconds a step", "minutes to there"]]
        for run in self.runs:
            taken = [f"{run.steps:,}", f"{run.seconds_a_step:.3f}", f"{run.seconds / 60:.1f}"]
            rows.append([f"{run.width}", f"{run.least:.3f}", *taken])
        return rows

    def verdict(self) -> Iterator[str]:
        """Whether wider ones need fewer steps, and from which width on they take longer all the same."""
        steps = self._steps()
        yield f"steps to {self.error:.3f} {steps} with the width"
        soonest = min(self.runs, key=lambda run: run.seconds)
        told = f"the soonest there has a width of {soonest.width} and took {soonest.seconds / 60:.1f} minutes"
        if soonest is self.runs[-1]:
            yield f"{told}: no wider one was run, which might be sooner still"
        else:
            yield f"{told}: wider ones took longer"

    def _steps(self) -> str:
        """How the steps change with the width, in words."""
        found, steps = [run.width for run in self.runs], [run.steps for run in self.runs]
        if len(set(found)) > 2:
            with suppress(UserError):  # of steps that do not fall
                falls = fit(found, steps, irreducible=False, steepest=-math.inf).parameter("beta")
                return f"change by a power of {falls.value:.2f} ({falls.low:.2f} to {falls.high:.2f})"
        return f"go from {steps[0]:,} to {steps[-1]:,}"


def race(found: Curve) -> Race | None:
    """How the runs on the largest size came to an error that all reach; None where not two say how they came there."""
    largest = found.best[-1].size
    runs = sorted(
        (point for point in found.points if point.size == largest and point.course), key=lambda one: one.width
    )
    if len(runs) < 2:
        return None
    common = max(run.error for run in runs)
    arrived = [(run, run.until(common) or run.course[-1][:2]) for run in runs]
    return Race(common, tuple(Arrival(run.width, run.error, *there) for run, there in arrived))


def sizes(found: Curve) -> list[list[str]]:
    """The best run of each size as a table, the head first."""
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
    """The law in words, and how well it predicted the largest size."""
    beta, gamma = found.whole.parameter("beta"), found.whole.parameter("gamma")
    law = found.whole.law
    yield (
        f"error = {law.alpha:.4g} x tokens^{law.beta:.3f} + {law.gamma:.3f}; exponent {beta.low:.3f} to "
        f"{beta.high:.3f}, irreducible {gamma.low:.3f} to {gamma.high:.3f}; {found.whole.explained:.1%} of the variance"
    )
    last = found.best[-1]
    told = found.before.measured(last.size)
    yield (
        f"predicted from the sizes below for {last.size:,.0f} tokens: {told.value:.4f} ({told.low:.4f} to "
        f"{told.high:.4f}); measured: {last.error:.4f}, which is {abs(found.missed):.1%} off"
    )
    hurried = [point for point in found.best if point.passes < 1]
    if hurried:
        least = min(point.passes for point in hurried)
        yield (
            f"{len(hurried)} of {len(found.best)} runs have not read all of their text (the least {least:.0%} of it): "
            "their errors are of so many steps, not of so much text, and this is no law of the text"
        )


def amount(interval: Interval) -> str:
    """A number of tokens with its interval."""
    low, value, high = (
        "endless" if math.isinf(x) else f"{x:,.3g}" for x in (interval.low, interval.value, interval.high)
    )
    return f"{value} ({low} to {high})"

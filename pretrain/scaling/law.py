"""A power law with an irreducible term, fitted to measured errors: Hestness et al., 2017, arXiv 1712.00409, section 3.

    error(m) = alpha m^beta + gamma,   -1 <= beta < 0 <= gamma

m being the size of the training set.  For each gamma the other two are a line through the logarithms; gamma is the one
with the least squares of the errors' logarithms.  Intervals are bootstrapped over the residuals, each draw of which is
as many times larger or smaller as their size is uncertain: few points leave few degrees of freedom, by which Student's
t differs from a normal distribution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ernie.errors import UserError
from ernie.report.words import plural

RESAMPLES = 400
STEEPEST = -1.0  # the exponent of a learning curve: no error falls faster than its text grows
_FARTHEST = 5.0  # of a point from its law, in logarithms
_FINER = 61  # gammas between two neighbours of the best one
_GRID = np.concatenate([[0.0], 1 - np.geomspace(1.0, 1e-4, 120)[1:]])  # gamma, as shares of the smallest error


@dataclass(frozen=True)
class Law:
    """error(m) = alpha m^beta + gamma."""

    alpha: float
    beta: float
    gamma: float = 0.0

    def error(self, size: float) -> float:
        """The error that a size leads to."""
        return float(self.alpha * size**self.beta + self.gamma)

    def size(self, error: float) -> float:
        """The size that an error needs; infinite where the law never gets there."""
        if error <= self.gamma or self.beta >= 0:
            return math.inf
        try:
            return float(((error - self.gamma) / self.alpha) ** (1 / self.beta))
        except OverflowError:  # of a law that hardly falls
            return math.inf


@dataclass(frozen=True)
class Interval:
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        return isinstance(value, (int, float)) and self.low <= value <= self.high


@dataclass(frozen=True)
class Fit:
    """The law that fits best, and those that fit the resampled points."""

    law: Law
    resampled: tuple[Law, ...]
    noise: tuple[float, ...]  # how far off, in logarithms, one more measurement is: for each of the resampled laws
    sizes: tuple[float, ...]
    errors: tuple[float, ...]

    @property
    def explained(self) -> float:
        """The share of the variance of the errors' logarithms that the law explains."""
        logs = np.log(self.errors)
        rest = logs - np.log([self.law.error(size) for size in self.sizes])
        return 1 - float((rest**2).sum() / ((logs - logs.mean()) ** 2).sum())

    def error(self, size: float) -> Interval:
        """What a size leads to."""
        return self._interval(self.law.error(size), [law.error(size) for law in self.resampled])

    def measured(self, size: float) -> Interval:
        """What one more measurement at a size is to be expected to find: the law's error, and its own noise."""
        off = zip(self.resampled, self.noise, strict=True)
        return self._interval(self.law.error(size), [law.error(size) * math.exp(noise) for law, noise in off])

    def size(self, error: float) -> Interval:
        """What an error needs."""
        return self._interval(self.law.size(error), [law.size(error) for law in self.resampled])

    def parameter(self, name: str) -> Interval:
        """alpha, beta or gamma."""
        return self._interval(getattr(self.law, name), [getattr(law, name) for law in self.resampled])

    def _interval(self, value: float, values: Sequence[float]) -> Interval:
        ordered = sorted(values)
        low, high = (ordered[min(len(ordered) - 1, int(share * len(ordered)))] for share in (0.025, 0.975))
        return Interval(value, min(low, value), max(high, value))


def fit(
    sizes: Sequence[float],
    errors: Sequence[float],
    *,
    irreducible: bool = True,
    steepest: float = STEEPEST,
) -> Fit:
    """Fit the law to errors at sizes; without an irreducible term gamma is 0.  No exponent lies below `steepest`.

    Raises UserError with what is wrong: too few sizes, one that is not positive, errors that do not fall.
    """
    needed = 4 if irreducible else 3
    if len(set(sizes)) < needed:
        raise UserError(
            f"{plural(len(set(sizes)), 'size')} cannot tell a law of {needed - 1} numbers; measure {needed} or more"
        )
    if min(*sizes, *errors) <= 0:
        raise UserError(f"sizes and errors have to be above 0, found {min(*sizes, *errors):g}")
    m, e = np.asarray(sizes, np.float64), np.asarray(errors, np.float64)
    gammas = _GRID * e.min() if irreducible else np.zeros(1)
    [law] = _laws(m, e[None], gammas, steepest)
    if law.beta >= 0:
        raise UserError(f"the error does not fall with the size (exponent {law.beta:+.3f}); there is no law to fit")
    fitted = np.array([law.error(size) for size in m])
    residuals = np.log(e / fitted)
    free = max(1, len(m) - needed + 1)
    residuals = (residuals - residuals.mean()) * math.sqrt(len(m) / free)
    rng = np.random.default_rng(0)
    scale = np.sqrt(free / rng.chisquare(free, (RESAMPLES, 1)))
    drawn = scale * residuals[rng.integers(0, len(m), (RESAMPLES, len(m) + 1))]  # one more, for what is measured next
    drawn = drawn.clip(-_FARTHEST, _FARTHEST)
    resampled = _laws(m, fitted * np.exp(drawn[:, :-1]), gammas, steepest)
    return Fit(law, tuple(resampled), tuple(drawn[:, -1].tolist()), tuple(map(float, sizes)), tuple(map(float, errors)))


def _laws(sizes: np.ndarray, errors: np.ndarray, gammas: np.ndarray, steepest: float) -> list[Law]:
    """The best law for each row of errors; each gamma is then looked for between its neighbours once more."""
    found = []
    for row in errors:
        usable = gammas[gammas < row.min() * (1 - 1e-9)]
        law, best = _best(sizes, row, usable, steepest)
        if len(usable) > 1:
            around = usable[max(0, best - 1)], usable[min(len(usable) - 1, best + 1)]
            law, _ = _best(sizes, row, np.linspace(*around, _FINER), steepest)
        found.append(law)
    return found


def _best(sizes: np.ndarray, errors: np.ndarray, gammas: np.ndarray, steepest: float) -> tuple[Law, int]:
    """The law with the least squares, and which of the gammas it has."""
    x = np.log(sizes)
    centred = x - x.mean()
    y = np.log(errors[None] - gammas[:, None])
    beta = np.clip((y * centred).sum(1) / (centred**2).sum(), steepest, None)
    alpha = y.mean(1) - beta * x.mean()
    fitted = np.exp(alpha[:, None] + beta[:, None] * x) + gammas[:, None]
    best = int(((np.log(fitted) - np.log(errors)) ** 2).sum(1).argmin())
    return Law(float(np.exp(alpha[best])), float(beta[best]), float(gammas[best])), best

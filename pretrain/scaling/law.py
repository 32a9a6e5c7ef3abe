"""A power law with an irreducible term, fitted to measured errors: Hestness et al., 2017, arXiv 1712.00409, section 3.

    error(m) = alpha m^beta + gamma,   -1 <= beta < 0 <= gamma

m being the size of the training set.  For each gamma the other two are a linear fit in log-log space; gamma minimizes
the squared errors of the logarithms.  Intervals come from a bootstrap over the residuals.  Each resample is scaled by
the uncertainty of the residuals' own deviation, as Student's t differs from a normal distribution: few points leave few
degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ernie.errors import UserError
from ernie.formatting import plural

RESAMPLES = 400
STEEPEST = -1.0  # bound of the exponent: no error falls faster than its text grows
_FARTHEST = 5.0  # bound of a resampled residual, in logarithms
_FINER = 61  # gammas of the second pass, between the neighbors of the best one
_GRID = np.concatenate([[0.0], 1 - np.geomspace(1.0, 1e-4, 120)[1:]])  # of gamma, in smallest errors


@dataclass(frozen=True)
class Law:
    """error(m) = alpha m^beta + gamma."""

    alpha: float
    beta: float
    gamma: float = 0.0

    def error(self, size: float) -> float:
        """The error at a size."""
        return float(self.alpha * size**self.beta + self.gamma)

    def size(self, error: float) -> float:
        """The size at which the law reaches an error; infinite where it never does."""
        if error <= self.gamma or self.beta >= 0:
            return math.inf
        try:
            return float(((error - self.gamma) / self.alpha) ** (1 / self.beta))
        except OverflowError:  # the law hardly falls
            return math.inf


@dataclass(frozen=True)
class Interval:
    """A value with its 95% interval."""

    value: float
    low: float
    high: float

    def __contains__(self, value: object) -> bool:
        return isinstance(value, (int, float)) and self.low <= value <= self.high


@dataclass(frozen=True)
class Fit:
    """The best-fitting law, and the laws fitted to resampled points."""

    law: Law
    resampled: tuple[Law, ...]
    noise: tuple[float, ...]  # of one more measurement, in logarithms, for each resampled law
    sizes: tuple[float, ...]
    errors: tuple[float, ...]

    @property
    def explained(self) -> float:
        """R squared in log space: the fraction of the variance of the log errors that the law explains."""
        logs = np.log(self.errors)
        residuals = logs - np.log([self.law.error(size) for size in self.sizes])
        return 1 - float((residuals**2).sum() / ((logs - logs.mean()) ** 2).sum())

    def error(self, size: float) -> Interval:
        """The error of the law at a size, with its confidence interval."""
        return self._interval(self.law.error(size), [law.error(size) for law in self.resampled])

    def measured(self, size: float) -> Interval:
        """The prediction interval of one more measurement at a size: the law's uncertainty plus the noise."""
        pairs = zip(self.resampled, self.noise, strict=True)
        return self._interval(self.law.error(size), [law.error(size) * math.exp(noise) for law, noise in pairs])

    def size(self, error: float) -> Interval:
        """The size at which the law reaches an error, with its confidence interval."""
        return self._interval(self.law.size(error), [law.size(error) for law in self.resampled])

    def parameter(self, name: str) -> Interval:
        """`alpha`, `beta` or `gamma` with its confidence interval."""
        return self._interval(getattr(self.law, name), [getattr(law, name) for law in self.resampled])

    def _interval(self, value: float, values: Sequence[float]) -> Interval:
        ordered = sorted(values)
        low, high = (ordered[min(len(ordered) - 1, int(level * len(ordered)))] for level in (0.025, 0.975))
        return Interval(value, min(low, value), max(high, value))


def fit(
    sizes: Sequence[float],
    errors: Sequence[float],
    *,
    irreducible: bool = True,
    steepest: float = STEEPEST,
) -> Fit:
    """Fit the law to errors at sizes; gamma is 0 without `irreducible`, and no exponent lies below `steepest`.

    Raises UserError for too few distinct sizes, for values that are not positive, and for errors that do not fall.
    """
    needed = 4 if irreducible else 3
    if len(set(sizes)) < needed:
        raise UserError(
            f"{plural(len(set(sizes)), 'size')} cannot determine a law of {needed - 1} numbers; measure {needed} or "
            "more"
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
    free = max(1, len(m) - needed + 1)  # degrees of freedom
    residuals = (residuals - residuals.mean()) * math.sqrt(len(m) / free)
    rng = np.random.default_rng(0)
    scale = np.sqrt(free / rng.chisquare(free, (RESAMPLES, 1)))
    draws = scale * residuals[rng.integers(0, len(m), (RESAMPLES, len(m) + 1))]  # the last one is `noise`
    draws = draws.clip(-_FARTHEST, _FARTHEST)
    resampled = _laws(m, fitted * np.exp(draws[:, :-1]), gammas, steepest)
    return Fit(law, tuple(resampled), tuple(draws[:, -1].tolist()), tuple(map(float, sizes)), tuple(map(float, errors)))


def _laws(sizes: np.ndarray, errors: np.ndarray, gammas: np.ndarray, steepest: float) -> list[Law]:
    """The best law for each row of errors; gamma is refined between the grid neighbors of the best one."""
    laws = []
    for row in errors:
        usable = gammas[gammas < row.min() * (1 - 1e-9)]
        law, best = _best(sizes, row, usable, steepest)
        if len(usable) > 1:
            bounds = usable[max(0, best - 1)], usable[min(len(usable) - 1, best + 1)]
            law, _ = _best(sizes, row, np.linspace(*bounds, _FINER), steepest)
        laws.append(law)
    return laws


def _best(sizes: np.ndarray, errors: np.ndarray, gammas: np.ndarray, steepest: float) -> tuple[Law, int]:
    """The least-squares law over all gammas, and the index of its gamma."""
    x = np.log(sizes)
    centered = x - x.mean()
    y = np.log(errors[None] - gammas[:, None])
    beta = np.clip((y * centered).sum(1) / (centered**2).sum(), steepest, None)
    alpha = y.mean(1) - beta * x.mean()
    fitted = np.exp(alpha[:, None] + beta[:, None] * x) + gammas[:, None]
    best = int(((np.log(fitted) - np.log(errors)) ** 2).sum(1).argmin())
    return Law(float(np.exp(alpha[best])), float(beta[best]), float(gammas[best])), best

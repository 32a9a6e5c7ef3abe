"""How long a batch takes: t = a + b tokens, fitted to the batches that were computed."""

from __future__ import annotations

import math
from collections.abc import Sequence

_MEMORY = 200  # batches after which one counts a third as much as a new one
_PRIOR = 5.0  # how many batches each measurement at the start is worth
_PRIOR_MEMORY = 2000  # batches after which a measurement at the start counts a third as much
_LEAST_PRIOR = 0.1  # of its worth, which it keeps: batches that are all alike do not tell both coefficients apart
_LEAST = 1e-6  # seconds
_OUTLIER = 4.0  # a batch that took so many times as long as expected counts as one that took this many times
_TAIL = 0.95  # the share of batches that `surely` covers
_STEP = 0.02
_JITTER = 0.03  # seconds: what delays a batch by a few milliseconds does so however short it is


class CostModel:
    """The time of a batch of so many tokens, in seconds: `fixed` + `per_token` x tokens.

    The fit is by least squares of relative errors: otherwise the longest batches alone would decide.  Older batches
    count less and less.  So do the measurements at the start, more slowly: the machine may have been busy then.  `tail`
    is the factor by which few batches take longer than the fit, after the same is added to both: delays of a few
    milliseconds hit short batches as well.
    """

    def __init__(self, measured: Sequence[tuple[int, float]]):
        self._prior, self._recent, self._trust = _Sums(), _Sums(), 1.0
        for tokens, seconds in measured:
            self._prior.add(tokens, seconds, _PRIOR / max(seconds, _LEAST) ** 2)
        self.tail = 1.1
        self._fit()

    def seconds(self, tokens: int) -> float:
        """Return how long a batch of so many tokens takes on average."""
        return self.fixed + self.per_token * tokens

    def surely(self, tokens: int) -> float:
        """Return the time that few batches of so many tokens exceed."""
        return self.at_most(self.seconds(tokens))

    def at_most(self, seconds: float) -> float:
        """Return the time that few batches exceed which are expected to take so long, together."""
        return self.tail * (seconds + _JITTER) - _JITTER

    def tokens_within(self, seconds: float) -> int:
        """Return the size of the largest batch that surely takes no longer; 0 if there is none."""
        expected = (seconds + _JITTER) / self.tail - _JITTER
        return max(0, int((expected - self.fixed) / self.per_token))

    def tokens_for(self, efficiency: float) -> int:
        """Return the smallest batch that reaches this fraction of the highest throughput."""
        return math.ceil(self.fixed / self.per_token * efficiency / (1 - efficiency))

    def observe(self, tokens: int, seconds: float) -> None:
        """Learn from a batch that was computed."""
        expected = self.seconds(tokens)
        # Stochastic approximation of a quantile (Robbins and Monro, 1951): up by rare excesses, down by the others.
        self.tail *= math.exp(_STEP * (_TAIL if seconds > self.surely(tokens) else _TAIL - 1))
        self.tail = min(max(self.tail, 1.0), _OUTLIER)
        seconds = min(seconds, _OUTLIER * expected)
        self._recent.decay(math.exp(-1 / _MEMORY))
        self._trust = max(_LEAST_PRIOR, self._trust * math.exp(-1 / _PRIOR_MEMORY))
        self._recent.add(tokens, seconds, 1 / max(expected, _LEAST) ** 2)
        self._fit()

    def _fit(self) -> None:
        self.fixed, self.per_token = (self._prior.scaled(self._trust) + self._recent).line()


class _Sums:
    """The weighted sums of a straight line's least squares: of 1, x, x², y and x y."""

    def __init__(self, values: Sequence[float] = (0.0,) * 5):
        self.values = list(values)

    def add(self, x: float, y: float, weight: float) -> None:
        for i, value in enumerate((1.0, x, x * x, y, x * y)):
            self.values[i] += weight * value

    def decay(self, factor: float) -> None:
        self.values = self.scaled(factor).values

    def scaled(self, factor: float) -> _Sums:
        return _Sums([factor * value for value in self.values])

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums([a + b for a, b in zip(self.values, other.values, strict=True)])

    def line(self) -> tuple[float, float]:
        """Return the intercept and the slope, neither of them below zero."""
        n, x, xx, y, xy = self.values
        spread = n * xx - x * x
        if spread <= 1e-12 * n * xx:
            return _LEAST, max(xy / xx, 1e-9) if xx else 1e-9
        slope = (n * xy - x * y) / spread
        if slope <= 0:
            return max(y / n, _LEAST), 1e-9
        fixed = (y - slope * x) / n
        return (fixed, slope) if fixed > 0 else (_LEAST, xy / xx)

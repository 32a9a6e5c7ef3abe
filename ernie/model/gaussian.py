"""Normal distributions of single samples, by their means and the logarithms of their deviations.

Legend: N sequences, R samples.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import paddle
from paddle import Tensor

LEAST = -7.0  # of the logarithms of deviations, where two distributions are compared
APART = 4.0  # the weight of how far these logarithms are apart


class Gaussian(NamedTuple):
    """A distribution for each sample, (N, R)."""

    mean: Tensor
    log_scale: Tensor

    def at_least(self, log_scale: float) -> Gaussian:
        """The same with deviations of at least e^log_scale: a likelihood has no bound where they come to nothing."""
        return Gaussian(self.mean, paddle.clip(self.log_scale, min=log_scale))

    def nats(self, samples: Tensor) -> Tensor:
        """-log of the density of each sample."""
        away = (samples - self.mean) * paddle.exp(-self.log_scale)
        return 0.5 * away * away + self.log_scale + 0.5 * math.log(2 * math.pi)

    def applied(self, noise: Tensor) -> Tensor:
        """Draws that are made of draws from the standard normal distribution."""
        return noise * paddle.exp(self.log_scale) + self.mean

    def after(self, other: Gaussian) -> Gaussian:
        """What becomes of draws from another distribution when they are applied to this one."""
        return Gaussian(self.applied(other.mean), other.log_scale + self.log_scale)

    def louder(self, times: float) -> Gaussian:
        """Those of draws that are so many times as large."""
        return Gaussian(self.mean * times, self.log_scale + math.log(times))

    def last(self, count: int) -> Gaussian:
        """Those of the last samples."""
        return Gaussian(self.mean[:, -count:], self.log_scale[:, -count:])


def divergence(q: Gaussian, p: Gaussian) -> Tensor:
    """KL(q || p) of each sample."""
    apart = p.log_scale - q.log_scale
    away = (p.mean - q.mean) * paddle.exp(-p.log_scale)
    return apart + 0.5 * (paddle.exp(-2 * apart) + away * away - 1)


def regularized_divergence(q: Gaussian, p: Gaussian, apart: float = APART) -> Tensor:
    """KL(q || p) of each sample, plus `apart` times the squared difference of the logarithms of the deviations.

    Where p is sharp, KL alone has gradients that are too large to learn from: Ping et al., 2019, "ClariNet" (arXiv
    1807.07281), section 3.3.
    """
    q, p = q.at_least(LEAST), p.at_least(LEAST)
    difference = p.log_scale - q.log_scale
    return divergence(q, p) + apart * difference * difference

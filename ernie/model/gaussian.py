"""Normal distributions of single samples, as means and logarithms of standard deviations.

Legend: N sequences, R samples.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import paddle
from paddle import Tensor

from ernie.kernels.elementwise import elementwise

MIN_LOG_SCALE = -7.0  # lower bound of log standard deviations when two distributions are compared
LOG_STD_PENALTY = 4.0  # weight of the squared difference of log standard deviations


class Gaussian(NamedTuple):
    """A normal distribution for each sample, (N, R)."""

    mean: Tensor
    log_scale: Tensor

    def at_least(self, log_scale: float) -> Gaussian:
        """Clamp standard deviations to at least e^log_scale: the likelihood is unbounded as they approach zero."""
        return Gaussian(self.mean, paddle.clip(self.log_scale, min=log_scale))

    def nats(self, samples: Tensor) -> Tensor:
        """Return the negative log likelihood of each sample, in nats."""
        z = (samples - self.mean) * paddle.exp(-self.log_scale)
        return 0.5 * z * z + self.log_scale + 0.5 * math.log(2 * math.pi)

    def from_noise(self, noise: Tensor) -> Tensor:
        """Transform standard normal noise to samples of this distribution."""
        return noise * elementwise(paddle.exp, self.log_scale) + self.mean

    def compose(self, other: Gaussian) -> Gaussian:
        """Return the distribution of `from_noise(x)` for x sampled from `other`."""
        return Gaussian(self.from_noise(other.mean), other.log_scale + self.log_scale)

    def scaled(self, times: float) -> Gaussian:
        """Return the distribution of samples multiplied by `times`."""
        return Gaussian(self.mean * times, self.log_scale + math.log(times))

    def last(self, count: int) -> Gaussian:
        """Return the distributions of the last `count` samples."""
        return Gaussian(self.mean[:, -count:], self.log_scale[:, -count:])


def divergence(q: Gaussian, p: Gaussian) -> Tensor:
    """KL(q || p) of each sample."""
    log_ratio = p.log_scale - q.log_scale
    shift = (p.mean - q.mean) * paddle.exp(-p.log_scale)
    return log_ratio + 0.5 * (paddle.exp(-2 * log_ratio) + shift * shift - 1)


def regularized_divergence(q: Gaussian, p: Gaussian, log_std_penalty: float = LOG_STD_PENALTY) -> Tensor:
    """KL(q || p) of each sample, plus `log_std_penalty` times the squared difference of the log standard deviations.

    Where p is peaked, the gradients of KL alone are too large for training: Ping et al., 2019, "ClariNet" (arXiv
    1807.07281), section 3.3.
    """
    q, p = q.at_least(MIN_LOG_SCALE), p.at_least(MIN_LOG_SCALE)
    difference = p.log_scale - q.log_scale
    return divergence(q, p) + log_std_penalty * difference * difference

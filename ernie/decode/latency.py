"""Latency metrics of simultaneous translation.

A delay is how much of the source had been read before a target token was written, in tokens or in seconds; with the
computing time added to the seconds, the same metrics are computation-aware.  All need a sentence's delays and the
length of its source in the same unit, and most the length of a reference translation in tokens.  All raise ValueError
for a translation without tokens, and for a source or reference without length.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import astuple, dataclass

_ALL = 1 - 1e-9  # of the source: delays in seconds are sums, which rounding may leave just below its length


def average_lagging(delays: Sequence[float], source: float, reference: int) -> float:
    """AL: the average lag behind a translation that keeps pace with the source, until all of the source is read.

    Ma et al., 2019 (arXiv 1810.08398), section 4.1.
    """
    return _lagging(delays, source, reference)


def length_adaptive_average_lagging(delays: Sequence[float], source: float, reference: int) -> float:
    """LAAL: as AL, but a translation longer than the reference does not get a lower lag.

    Papi et al., 2022 (arXiv 2206.05807), section 3.
    """
    return _lagging(delays, source, max(reference, len(delays)))


def average_proportion(delays: Sequence[float], source: float) -> float:
    """AP: the share of the source that was read before a target token was written, on average over all of them.

    Cho and Esipova, 2016 (arXiv 1606.02012), section 3.  Dividing by the length of the reference, as AL does, would not
    give a share: it would exceed 1 for longer translations.
    """
    _check(delays, source)
    return sum(delays) / (source * len(delays))


def differentiable_average_lagging(delays: Sequence[float], source: float) -> float:
    """DAL: as AL over all target tokens, each of which takes at least its share of the source's time.

    Cherry and Foster, 2019 (arXiv 1906.00048), section 3.
    """
    _check(delays, source)
    pace = source / len(delays)
    total, last = 0.0, -pace
    for written, delay in enumerate(delays):
        last = max(delay, last + pace)
        total += last - written * pace
    return total / len(delays)


def consecutive_wait(delays: Sequence[float]) -> float:
    """CW: how much is read at a time, on average over all reads.

    Gu et al., 2017 (arXiv 1610.00388), section 4.2.
    """
    waits = [now - before for before, now in zip([0.0, *delays], delays, strict=False) if now > before]
    return sum(waits) / len(waits) if waits else 0.0


@dataclass(frozen=True)
class Latency:
    """All metrics of one translation, or their means over many; in the unit of the delays, except for the share AP."""

    lagging: float
    length_adaptive: float
    differentiable: float
    proportion: float
    wait: float

    @classmethod
    def of(cls, delays: Sequence[float], source: float, reference: int) -> Latency:
        """Return the metrics of one translation.  Raises ValueError if it has no token."""
        return cls(
            average_lagging(delays, source, reference),
            length_adaptive_average_lagging(delays, source, reference),
            differentiable_average_lagging(delays, source),
            average_proportion(delays, source),
            consecutive_wait(delays),
        )

    @classmethod
    def mean(cls, latencies: Sequence[Latency]) -> Latency:
        """Return the mean of each metric.  Raises ValueError if there is no translation."""
        if not latencies:
            raise ValueError("the mean latency of no translation")
        return cls(*(statistics.mean(column) for column in zip(*map(astuple, latencies), strict=True)))


# The names of the metrics, and their fields in Latency.
MEASURES = (
    ("AL", "lagging"),
    ("LAAL", "length_adaptive"),
    ("DAL", "differentiable"),
    ("AP", "proportion"),
    ("CW", "wait"),
)


def _check(delays: Sequence[float], source: float, target: int = 1) -> None:
    if not len(delays):
        raise ValueError("the lag of a translation that has no token")
    if source <= 0 or target < 1:
        raise ValueError(f"the lag behind a source of length {source:g} and a reference of {target} tokens")


def _lagging(delays: Sequence[float], source: float, target: int) -> float:
    _check(delays, source, target)
    pace = source / target
    total = 0.0
    for written, delay in enumerate(delays):
        total += delay - written * pace
        if delay >= source * _ALL:
            break
    return total / (written + 1)

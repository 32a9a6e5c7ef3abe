"""How far a simultaneous translation stays behind its source.

A delay is what was read of the source before a token of the target was written: a number of tokens, or seconds; with
what it took to compute added to the seconds the same measures are computation-aware.  All need a sentence's delays,
the length of its source in the same unit, and mostly that of a reference translation in tokens.  None is defined for a
translation without a token: they raise ValueError.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import astuple, dataclass


def average_lagging(delays: Sequence[float], source: float, reference: int) -> float:
    """AL: by how much the writer lags behind one that keeps pace with the source, until all of it is read.

    Ma et al., 2019 (arXiv 1810.08398), section 4.1.
    """
    return _lagging(delays, source, reference)


def length_adaptive_average_lagging(delays: Sequence[float], source: float, reference: int) -> float:
    """LAAL: as AL, but writing more than the reference has does not look like being early.

    Papi et al., 2022 (arXiv 2206.05807), section 3.
    """
    return _lagging(delays, source, max(reference, len(delays)))


def average_proportion(delays: Sequence[float], source: float) -> float:
    """AP: the share of the source that was read before a token was written, in the mean of all that were.

    Cho and Esipova, 2016 (arXiv 1606.02012), section 3.  A reference's length in the place of the translation's own, as
    with AL, would make of it another number than a share, above 1 where the translation is longer.
    """
    _check(delays)
    return sum(delays) / (source * len(delays))


def differentiable_average_lagging(delays: Sequence[float], source: float) -> float:
    """DAL: as AL over all that is written, where each token takes the writer its share of the source's time.

    Cherry and Foster, 2019 (arXiv 1906.00048), section 3.
    """
    _check(delays)
    pace = source / len(delays)
    total, last = 0.0, -pace
    for written, delay in enumerate(delays):
        last = max(delay, last + pace)
        total += last - written * pace
    return total / len(delays)


def consecutive_wait(delays: Sequence[float]) -> float:
    """CW: how much is read at a time, in the mean of the times when anything is read.

    Gu et al., 2017 (arXiv 1610.00388), section 4.2.
    """
    waits = [now - before for before, now in zip([0.0, *delays], delays, strict=False) if now > before]
    return sum(waits) / len(waits) if waits else 0.0


@dataclass(frozen=True)
class Latency:
    """All measures of one translation, or of many in the mean; in the unit of its delays, but for the share AP."""

    lagging: float
    length_adaptive: float
    differentiable: float
    proportion: float
    wait: float

    @classmethod
    def of(cls, delays: Sequence[float], source: float, reference: int) -> Latency:
        """Those of one translation.  Raises ValueError where it has no token."""
        return cls(
            average_lagging(delays, source, reference),
            length_adaptive_average_lagging(delays, source, reference),
            differentiable_average_lagging(delays, source),
            average_proportion(delays, source),
            consecutive_wait(delays),
        )

    @classmethod
    def mean(cls, found: Sequence[Latency]) -> Latency:
        """The mean of each over translations, of which there is one at least."""
        return cls(*(statistics.mean(column) for column in zip(*map(astuple, found), strict=True)))


# What the measures are called, and the field of Latency that each is.
MEASURES = (
    ("AL", "lagging"),
    ("LAAL", "length_adaptive"),
    ("DAL", "differentiable"),
    ("AP", "proportion"),
    ("CW", "wait"),
)


def _check(delays: Sequence[float]) -> None:
    if not len(delays):
        raise ValueError("the lag of a translation that has no token")


def _lagging(delays: Sequence[float], source: float, target: int) -> float:
    _check(delays)
    pace = source / target
    total = 0.0
    for written, delay in enumerate(delays):
        total += delay - written * pace
        if delay >= source:
            break
    return total / (written + 1)

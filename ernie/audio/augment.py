"""Changes of sound that leave what is said as it is: so that a model does not learn single recordings by heart.

Legend: S samples of sound, F frames, M features of a frame.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ernie.audio.wave import resample
from ernie.config import check_least
from ernie.errors import UserError


@dataclass(frozen=True)
class AugmentConfig:
    """What is changed of the recordings to learn from, anew in every epoch.

    `speed`: faster or slower by up to this share, drawn for each (Ko et al., 2015).  `time_masks` stretches of up to
    `time` frames, and `bands` of up to `band` features, are blanked out (SpecAugment: Park et al., 2019,
    arXiv 1904.08779).
    """

    speed: float = 0.0
    time_masks: int = 0
    time: int = 10
    bands: int = 0
    band: int = 6

    def __post_init__(self) -> None:
        if not 0 <= self.speed < 0.5:
            raise UserError(f"speed: expected at least 0 and less than 0.5, found {self.speed:g}")
        if self.speed and not self.hundredths:
            raise UserError(f"speed: is counted in hundredths, and {self.speed:g} is less than one; give 0.01, or 0")
        check_least(self, time_masks=0, time=0, bands=0, band=0)

    @property
    def hundredths(self) -> int:
        """The speed in the steps that it is drawn in: a resampler needs whole numbers."""
        return round(100 * self.speed)


def perturbed(samples: np.ndarray, rate: int, config: AugmentConfig, rng: np.random.Generator) -> np.ndarray:
    """Samples (S,) that are played a little faster or slower."""
    if not config.speed:
        return samples
    drawn = 100 + int(rng.integers(-config.hundredths, config.hundredths + 1))
    return samples if drawn == 100 else resample(samples, rate * drawn, rate * 100)


def masked(
    features_FM: np.ndarray, config: AugmentConfig, rng: np.random.Generator, mean: np.ndarray | float = 0.0
) -> np.ndarray:
    """Features (F, M) with stretches and bands blanked out; at most a third of either in sum.

    What is blanked out has the `mean` (M,), zero where features are normalized: another value would be something to
    hear (Park et al., 2019, section 2).
    """
    found_FM = features_FM.copy()
    mean_FM = np.broadcast_to(mean, found_FM.shape)
    for turned, blank, count, most in (
        (found_FM, mean_FM, config.time_masks, config.time),
        (found_FM.T, mean_FM.T, config.bands, config.band),  # views: what is blanked out there is blanked out here
    ):
        size = len(turned)
        most = min(most, size // (3 * count)) if count else 0
        for _ in range(count):
            width = int(rng.integers(0, most + 1))
            first = int(rng.integers(0, size - width + 1))
            turned[first : first + width] = blank[first : first + width]
    return found_FM

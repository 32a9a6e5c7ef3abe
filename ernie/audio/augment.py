"""Data augmentation of sound, which keeps a model from memorizing single recordings.

Legend: S samples of sound, F frames, M features of a frame.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from ernie.audio.convert import resample
from ernie.config import check_least
from ernie.errors import UserError
from ernie.renames import formerly

_MOST_DECIBELS = 60


@dataclass(frozen=True)
class AugmentConfig:
    """The augmentation of training recordings, sampled anew in every epoch.

    `speed`: the maximum relative change of speed, sampled for each recording (Ko et al., 2015).  `time_masks` spans of
    up to `time_width` frames, and `freq_masks` bands of up to `freq_width` features, are masked (SpecAugment: Park et
    al., 2019, arXiv 1904.08779).  `volume` is the range of the change of loudness in decibels, such as [-20, 6]; [0, 0]
    changes nothing.
    """

    speed: float = 0.0
    volume: tuple[float, float] = (0.0, 0.0)
    time_masks: int = 0
    time_width: int = field(default=10, metadata=formerly("time"))
    freq_masks: int = field(default=0, metadata=formerly("bands"))
    freq_width: int = field(default=6, metadata=formerly("band"))

    def __post_init__(self) -> None:
        if not 0 <= self.speed < 0.5:
            raise UserError(f"speed: expected at least 0 and less than 0.5, found {self.speed:g}")
        if self.speed and not self.hundredths:
            raise UserError(f"speed: is counted in hundredths, and {self.speed:g} is less than one; give 0.01, or 0")
        low, high = self.volume
        if not -_MOST_DECIBELS <= low <= high <= _MOST_DECIBELS:
            raise UserError(
                f"volume: expected the lowest and the highest change, from -{_MOST_DECIBELS} to {_MOST_DECIBELS} dB, "
                f"found [{low:g}, {high:g}]"
            )
        check_least(self, time_masks=0, time_width=0, freq_masks=0, freq_width=0)

    @property
    def hundredths(self) -> int:
        """The speed in hundredths, the unit of sampling: the resampler needs integer rates."""
        return round(100 * self.speed)


def perturb_speed(samples: np.ndarray, rate: int, config: AugmentConfig, rng: np.random.Generator) -> np.ndarray:
    """Play samples (S,) a little faster or slower."""
    if not config.speed:
        return samples
    percent = 100 + int(rng.integers(-config.hundredths, config.hundredths + 1))
    return samples if percent == 100 else resample(samples, rate * percent, rate * 100)


def change_volume(samples: np.ndarray, config: AugmentConfig, rng: np.random.Generator) -> np.ndarray:
    """Play samples (S,) louder or quieter, by a number of decibels drawn evenly from the range."""
    if not any(config.volume):
        return samples
    return samples * np.float32(10 ** (rng.uniform(*config.volume) / 20))


def mask_spectrum(
    features_FM: np.ndarray, config: AugmentConfig, rng: np.random.Generator, mean: np.ndarray | float = 0.0
) -> np.ndarray:
    """Mask time spans and frequency bands of features (F, M), at most a third of each axis in total.

    Masked values are set to the `mean` (M,), which is zero for normalized features: any other value would be a signal
    (Park et al., 2019, section 2).
    """
    masked_FM = features_FM.copy()
    mean_FM = np.broadcast_to(mean, masked_FM.shape)
    for target, fill, count, max_width in (
        (masked_FM, mean_FM, config.time_masks, config.time_width),
        (masked_FM.T, mean_FM.T, config.freq_masks, config.freq_width),  # views: masking them masks the originals
    ):
        size = len(target)
        max_width = min(max_width, size // (3 * count)) if count else 0
        for _ in range(count):
            width = int(rng.integers(0, max_width + 1))
            first = int(rng.integers(0, size - width + 1))
            target[first : first + width] = fill[first : first + width]
    return masked_FM

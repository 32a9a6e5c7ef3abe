"""Convert sound to one channel at the wanted rate, block by block, and notice what is odd about it.

Legend: S samples of sound, C channels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ernie.errors import UserError

_MIN_RATE, _MAX_RATE = 1_000, 1_000_000  # samples a second
_SILENT = 1e-4  # the maximum amplitude of a silent recording: one step of 16 bits is 3e-5
_TOO_LOUD = 8.0  # no recording exceeds 1 by so much: these samples have another scale
_CLIPPED, _RUN = 0.999, 4  # a recording with a run of full-scale samples of this length is clipped
# The power of the mix as a share of the channels' mean power: 1 if they are equal, 1 / C if they have nothing in
# common, 0 if they are opposites.
_CANCELLED, _DIFFERENT = 0.05, 0.2
FULL_SCALE = 1 << 15  # the value of 1.0 in 16-bit samples


def check_rate(rate: int, name: str = "rate") -> None:
    """Raise UserError for a sampling rate that no sound has; `name` is that of the setting."""
    if not _MIN_RATE <= rate <= _MAX_RATE:
        raise UserError(f"{name}: expected {_MIN_RATE:,} to {_MAX_RATE:,} samples a second, found {rate:,}")


def check_numbers(samples: np.ndarray) -> None:
    """Raise UserError for samples that are NaN, infinite, or far from the range from -1 to 1."""
    if not np.isfinite(samples).all():
        raise UserError("holds samples that are not numbers")
    loudest = float(np.abs(samples).max(initial=0))
    if loudest > _TOO_LOUD:
        raise UserError(
            f"expected samples between -1 and 1, found {loudest:,.0f}; divide them by {FULL_SCALE:,}, if they were "
            "whole numbers of 16 bits"
        )


class Converter:
    """Mixes and resamples sound that comes in blocks, of which it keeps nothing.

    `channel` is `mix`, or the number of the one to take, counted from 1.
    """

    def __init__(self, found_rate: int, rate: int, channel: str = "mix", full_scale: float = _CLIPPED):
        check_rate(found_rate, "its rate")
        self._rates, self._channel, self._full_scale = (found_rate, rate), channel, full_scale
        self._resampler = Resampler(found_rate, rate)
        self._channels: list[Loudness] = []
        self._loudest, self._power = 0.0, np.zeros(2)  # of the mix, and the mean of the channels'

    def add(self, block_SC: np.ndarray) -> np.ndarray:
        """Take more samples (S, C); return those that are known by now.

        Raises UserError if they are not between -1 and 1, or lack the channel.
        """
        check_numbers(block_SC)
        if not self._channels:
            self._channels = [Loudness(self._full_scale) for _ in range(block_SC.shape[1])]
            self._check_channel()
        for loudness, channel in zip(self._channels, block_SC.T, strict=True):
            loudness.add(channel)
        if self._channel != "mix":
            mixed = block_SC[:, int(self._channel) - 1]
        else:
            mixed = block_SC[:, 0] if block_SC.shape[1] == 1 else block_SC.mean(1)
            double_SC = block_SC.astype(np.float64)
            self._power += (float((double_SC.mean(1) ** 2).sum()), float((double_SC**2).mean(1).sum()))
        self._loudest = max(self._loudest, float(np.abs(mixed).max(initial=0.0)))
        return self._resampler.more(mixed)

    def _check_channel(self) -> None:
        if self._channel != "mix" and int(self._channel) > len(self._channels):
            has = "has one channel" if len(self._channels) == 1 else f"has {len(self._channels)} channels"
            raise UserError(f"{has}, and channel {self._channel} was asked for")

    def rest(self) -> np.ndarray:
        """End the sound; return the rest of its samples."""
        return self._resampler.rest()

    @property
    def remarks(self) -> list[str]:
        """Remarks on the sound so far, in words that follow "the sound"."""
        found = self._channel_remarks()
        # A channel may be clipped although the mix is not.
        heard = self._channels if self._channel == "mix" else self._channels[int(self._channel) - 1 :][:1]
        found += _oddities(self._loudest, any(channel.clipped for channel in heard))
        found_rate, rate = self._rates
        if found_rate != rate:
            found.append(f"was resampled from {found_rate:,} to {rate:,} samples a second")
        return found

    def _channel_remarks(self) -> list[str]:
        count = len(self._channels)
        if count < 2:
            return []
        if self._channel != "mix":
            return [f"is channel {self._channel} of {count}"]
        found, (mixed, mean) = [f"was mixed from {count} channels"], self._power
        if mean and mixed / mean < _CANCELLED / count:
            found.append("has channels that cancel each other out; choose one, such as channel: left")
        elif mean and mixed / mean < (1 + _DIFFERENT) / count:
            found.append("has channels that differ strongly; choose one, such as channel: left, unless all matter")
        return found


def _oddities(loudest: float, clipped: bool) -> list[str]:
    """Return remarks on the loudness of a sound."""
    return ["is silent"] if loudest < _SILENT else ["is clipped"] if clipped else []


class Loudness:
    """Collects remarks on a streamed sound, complete once it is over."""

    def __init__(self, full_scale: float = _CLIPPED) -> None:
        self.clipped, self._full_scale = False, full_scale
        self._loudest = 0.0
        self._tail = np.zeros(0, np.float32)

    def add(self, samples: np.ndarray) -> None:
        """Take more samples (S,)."""
        joined = np.concatenate([self._tail, samples])
        loudest = float(np.abs(joined).max(initial=0.0))
        self._loudest = max(self._loudest, loudest)
        if loudest >= self._full_scale:
            self.clipped = self.clipped or is_clipped(joined, self._full_scale)
        self._tail = joined[-(_RUN - 1) :]

    @property
    def remarks(self) -> list[str]:
        """The remarks, in words that follow "the sound"."""
        return _oddities(self._loudest, self.clipped)


class Resampler:
    """Resamples sound that comes in pieces to another rate; the result is that of the whole sound, to the bit."""

    def __init__(self, rate: int, wanted: int):
        self._stream = None if rate == wanted else require("soxr").ResampleStream(rate, wanted, 1, "float32")

    def more(self, samples: np.ndarray) -> np.ndarray:
        """Take more samples (S,); return those that are known by now."""
        return samples if self._stream is None else self._stream.resample_chunk(np.ascontiguousarray(samples))

    def rest(self) -> np.ndarray:
        """End the sound; return the rest of its samples."""
        nothing = np.zeros(0, np.float32)
        return nothing if self._stream is None else self._stream.resample_chunk(nothing, last=True)


def resample(samples: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """Resample samples (S,) to another rate."""
    return require("soxr").resample(samples, rate, wanted).astype(np.float32)


def is_clipped(samples: np.ndarray, full_scale: float = _CLIPPED) -> bool:
    """Return whether there is a run of samples at full scale."""
    loud = np.concatenate(([0], (np.abs(samples) >= full_scale).astype(np.int8), [0]))
    begins, ends = np.flatnonzero(np.diff(loud) == 1), np.flatnonzero(np.diff(loud) == -1)
    return bool((ends - begins >= _RUN).any())


def require(name: str) -> Any:
    """Import a package that only sound needs.  Raises UserError if it is not installed."""
    try:
        return __import__(name)
    except (ImportError, OSError) as error:  # OSError: libsndfile is missing
        raise UserError(
            f"sound needs the package {name} ({error}): install the extra, pip install 'ernie-continual[speech]'"
        ) from None

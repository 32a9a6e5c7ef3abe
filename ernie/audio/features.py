"""Feature extraction from waveforms, whole or streamed: the results are bitwise equal.

Each frame is computed from its own samples alone, in a fixed order of operations, so that it does not matter how many
frames are computed at a time.

Legend: S samples of sound, F frames, K frequencies, M features of a frame.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from ernie.audio.convert import check_rate
from ernie.config import check_least
from ernie.errors import UserError
from ernie.renames import formerly

if TYPE_CHECKING:
    from scipy import sparse

_FLOOR = 1e-10  # minimum power before the logarithm
_MIN_VARIANCE = 1e-2  # of a feature: avoids amplifying one that is nearly constant
_KALDI_LOWEST = 20.0  # Hz
_ROUNDING = 1e-6  # samples by which a product of a time and a rate may be too small
_WARPED = 0.6  # of the highest frequency: up to there a warp is a plain factor
PREEMPHASIS = 0.97  # the share of the preceding sample that is subtracted from each
# The level of a frame is the mean over its features, in deviations from the training sounds' mean.
_SILENCE = -1.5  # the level below which a frame is silence
_RISE = 1.0  # levels a second by which the lowest level heard is forgotten
_STEADY = 0.5  # levels above the lowest one, below which the sound is steady: a pause, or noise
_PAUSE = 0.5  # seconds of steady sound that count for streaming statistics
_LOWEST = -3.0  # streaming features: digital silence, of which training sounds have none, may be 60 deviations lower


@dataclass(frozen=True)
class FeatureConfig:
    """The features that an encoder gets of a sound.

    Windows of `window` seconds, one every `hop` seconds, of sound with `sample_rate` samples a second.  `kind` is
    log_mel, the log power in `bins` bands of the mel scale, or linear, that at every frequency (Amodei et al., 2016,
    arXiv 1512.02595), or kaldi, the bands of Kaldi's fbank features.  `normalize`: over each utterance, over the
    training set (global), over the frames received lately (streaming), or none.  Utterance statistics are known only at
    the end, so such features cannot be streamed.

    Streaming statistics are those of the training set and of the frames of the last `normalize_seconds`, weighted
    alike; older frames fade exponentially.  Silence does not count, and of a longer pause or steady noise only the
    first half second.  With 0 they are those of all frames received, and of nothing else, as in versions without the
    key.  `remove_dc_offset` subtracts each window's mean from it.
    """

    kind: Literal["log_mel", "kaldi", "linear"] = "log_mel"
    sample_rate: int = field(default=8000, metadata=formerly("rate"))
    window: float = 0.025
    hop: float = 0.010
    bins: int = 40
    normalize: Literal["utterance", "global", "streaming", "none"] = "global"
    normalize_seconds: float = 10.0
    remove_dc_offset: bool = True

    def __post_init__(self) -> None:
        check_rate(self.sample_rate, "sample_rate")
        check_least(self, normalize_seconds=0)
        if self.window <= 0:
            raise UserError(f"window: expected more than 0 s, found {self.window:g}")
        if not 0 < self.hop <= self.window:
            raise UserError(f"hop: expected more than 0 and at most the window, {self.window:g} s, found {self.hop:g}")
        if self.window_samples < 16:
            raise UserError(f"window: {self.window:g} s are {self.window_samples} samples, too few for a spectrum")
        if self.kind != "linear" and not 1 <= self.bins <= self.frequencies // 2:
            raise UserError(
                f"bins: expected 1 to {self.frequencies // 2}, as many bands as {self.frequencies} frequencies tell "
                f"apart, found {self.bins}"
            )

    @property
    def window_samples(self) -> int:
        """The number of samples in a window."""
        return self._samples(self.window)

    @property
    def hop_samples(self) -> int:
        """The number of samples from one window to the next."""
        return max(1, self._samples(self.hop))

    def _samples(self, seconds: float) -> int:
        """Return the number of samples in a time: rounded, or by Kaldi cut off."""
        samples = seconds * self.sample_rate
        return math.floor(samples + _ROUNDING) if self.kind == "kaldi" else round(samples)

    @property
    def frequencies(self) -> int:
        """The number of frequencies in a spectrum."""
        return self._fft_size // 2 + 1

    @property
    def features(self) -> int:
        """The number of features in a frame."""
        return self.frequencies if self.kind == "linear" else self.bins

    def frames(self, samples: int) -> int:
        """Return the number of frames for a number of samples."""
        return max(0, 1 + (samples - self.window_samples) // self.hop_samples)

    @property
    def needs_statistics(self) -> bool:
        """Whether features are normalized by the statistics of the training set."""
        return self.normalize == "global" or (self.normalize == "streaming" and self.normalize_seconds > 0)

    @property
    def memory(self) -> float:
        """The number of frames that streaming statistics remember, and that the training set's count as."""
        return self.normalize_seconds * self.sample_rate / self.hop_samples

    @property
    def _fft_size(self) -> int:
        return 2 ** math.ceil(math.log2(self.window_samples))


def features(
    config: FeatureConfig, samples: np.ndarray, statistics: Statistics | None = None, warp: float = 1.0
) -> np.ndarray:
    """Return the features (F, M) of a whole sound (S,), normalized by `statistics` if the configuration needs them.

    `warp` is a factor of all frequencies, see `warped`.
    """
    features_FM = FeatureStream(config, statistics, warp).push(FeatureState(), samples)[1]
    if config.normalize == "utterance" and len(features_FM):
        features_FM = Statistics.of(features_FM).apply(features_FM)
    return features_FM


@dataclass(frozen=True, eq=False)
class Statistics:
    """Sums over frames: their count, and the sums (M,) of the features and of their squares."""

    count: float
    total: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, features_FM: np.ndarray) -> Statistics:
        """Return the statistics of some frames."""
        double_FM = features_FM.astype(np.float64)
        return cls(len(double_FM), double_FM.sum(0), (double_FM**2).sum(0))

    def merge(self, other: Statistics) -> Statistics:
        """Return the statistics of both sets of frames."""
        return Statistics(self.count + other.count, self.total + other.total, self.squares + other.squares)

    @classmethod
    def from_mean(cls, mean: np.ndarray, deviation: np.ndarray) -> Statistics:
        """Return statistics with this mean (M,) and standard deviation (M,)."""
        return cls(1, mean, deviation**2 + mean**2)

    def mean_and_deviation(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean (M,) and the standard deviation (M,), which is at least 0.1."""
        return self._mean_and_deviation

    @cached_property
    def _mean_and_deviation(self) -> tuple[np.ndarray, np.ndarray]:
        mean = self.total / self.count
        return mean, np.sqrt(np.maximum(self.squares / self.count - mean**2, _MIN_VARIANCE))

    def apply(self, features_FM: np.ndarray) -> np.ndarray:
        """Normalize features by the mean and the standard deviation."""
        mean, deviation = self.mean_and_deviation()
        return ((features_FM - mean) / deviation).astype(np.float32)


@dataclass(frozen=True, eq=False)
class FeatureState:
    """The state of a feature stream: the samples that later frames still need, and statistics.

    `last` is the sample before the first of `waiting`; `statistics` are those of the frames that are remembered.  The
    sound has been `steady` for so many frames, compared with `lowest`, the lowest level heard lately.
    """

    waiting: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    last: float = 0.0
    statistics: Statistics | None = None
    lowest: float = math.inf
    steady: int = 0


class FeatureStream:
    """Computes features of streamed sound.  It is stateless: `push` takes a state and returns the next one."""

    def __init__(self, config: FeatureConfig, statistics: Statistics | None = None, warp: float = 1.0):
        if config.needs_statistics and statistics is None:
            raise ValueError(f"normalize: {config.normalize} needs the statistics of the training set")
        self._config = config
        self._statistics = statistics if config.needs_statistics else None
        self._warp = warp

    def push(self, state: FeatureState, samples: np.ndarray) -> tuple[FeatureState, np.ndarray]:
        """Take more samples (S,); return the frames (F, M) that are complete now."""
        (found,) = self.push_each([state], [samples])
        return found

    def push_each(
        self, states: Sequence[FeatureState], samples: Sequence[np.ndarray]
    ) -> list[tuple[FeatureState, np.ndarray]]:
        """Do as `push` for many streams at once."""
        config, hop = self._config, self._config.hop_samples
        waiting = [
            np.concatenate([own.waiting, more.astype(np.float32)]) for own, more in zip(states, samples, strict=True)
        ]
        counts = [config.frames(len(own)) for own in waiting]
        each = list(zip(states, waiting, counts, strict=True))
        pieces = [(own, state.last, count) for state, own, count in each if count]
        all_FM = _unnormalized(config, pieces, self._warp)
        found, first = list[tuple[FeatureState, np.ndarray]](), 0
        for state, own, count in each:
            features_FM, first = all_FM[first : first + count], first + count
            if count:
                # With a hop as long as the window, the sample before those that wait may not have waited before.
                rest = replace(state, waiting=own[count * hop :].copy(), last=float(own[count * hop - 1]))
                found.append(self._normalize(rest, features_FM))
            else:
                found.append((replace(state, waiting=own), features_FM))
        return found

    def _normalize(self, state: FeatureState, features_FM: np.ndarray) -> tuple[FeatureState, np.ndarray]:
        if self._config.normalize == "streaming":
            return self._normalize_streaming(state, features_FM)
        return state, features_FM if self._statistics is None else self._statistics.apply(features_FM)

    def missing(self, state: FeatureState, frames: int) -> int:
        """Return how many samples more complete so many frames."""
        needed = self._config.window_samples + (frames - 1) * self._config.hop_samples if frames else 0
        return max(0, needed - len(state.waiting))

    def loudness(self, features_FM: np.ndarray) -> np.ndarray:
        """Return the logarithm of the mean energy over all bands of each frame, up to a constant, (F,).

        Among normalized features those of bands without speech, which vary least there, would hide the others.
        """
        if self._statistics is not None:
            mean, deviation = self._statistics.mean_and_deviation()
            features_FM = features_FM * deviation + mean
        highest_F = features_FM.max(1) if len(features_FM) else np.zeros(0, np.float32)
        return (highest_F + np.log(np.exp(features_FM - highest_F[:, None]).mean(1))).astype(np.float32)

    def _normalize_streaming(self, state: FeatureState, features_FM: np.ndarray) -> tuple[FeatureState, np.ndarray]:
        """Normalize each frame by the statistics of the training set, of itself and of the frames before it."""
        double_FM = features_FM.astype(np.float64)
        size = double_FM.shape[1]
        zero = np.zeros(size)
        before = _sums(state.statistics or Statistics(0, zero, zero))
        state, counts = self._counts(state, double_FM)
        ones = np.ones((int(counts.sum()), 1))
        new_FN = np.concatenate([ones, double_FM[counts], double_FM[counts] ** 2], 1)
        known_FN = np.concatenate([before[None], _fading_sums(before, new_FN, self._fading)])
        # Frames that do not count are normalized by the statistics of the last that does.
        sums_FN = known_FN[np.cumsum(counts)] + self._prior
        mean = sums_FN[:, 1 : size + 1] / sums_FN[:, :1]
        deviation = np.sqrt(np.maximum(sums_FN[:, size + 1 :] / sums_FN[:, :1] - mean**2, _MIN_VARIANCE))
        last = known_FN[-1]
        statistics = Statistics(float(last[0]), last[1 : size + 1], last[size + 1 :])
        lowest = -math.inf if self._statistics is None else _LOWEST
        normalized_FM = np.maximum((double_FM - mean) / deviation, lowest)
        return replace(state, statistics=statistics), normalized_FM.astype(np.float32)

    def _counts(self, state: FeatureState, features_FM: np.ndarray) -> tuple[FeatureState, np.ndarray]:
        """Return which frames (F,) count for streaming statistics: all but silence and what lasts of steady sound."""
        if self._statistics is None:
            return state, np.ones(len(features_FM), bool)
        mean, deviation = self._statistics.mean_and_deviation()
        hop = self._config.hop_samples / self._config.sample_rate
        lowest, steady, counts = state.lowest, state.steady, []
        for row in (features_FM - mean) / deviation:
            # Row by row, so that the order of the sum does not depend on the number of frames.
            level = float(row.mean())
            lowest = min(level, lowest + _RISE * hop)
            steady = steady + 1 if level < lowest + _STEADY else 0
            counts.append(level > _SILENCE and steady * hop <= _PAUSE)
        return replace(state, lowest=lowest, steady=steady), np.array(counts, bool)

    @property
    def _fading(self) -> float:
        """The factor by which the weight of a frame decreases with each frame after it."""
        return 1.0 if self._statistics is None else math.exp(-1 / self._config.memory)

    @cached_property
    def _prior(self) -> np.ndarray:
        """What the training set adds to the sums of streaming statistics: (1 + 2 M,) or zero."""
        if self._statistics is None:
            return np.zeros(1)
        mean, deviation = self._statistics.mean_and_deviation()
        return self._config.memory * _sums(Statistics.from_mean(mean, deviation))


def _sums(statistics: Statistics) -> np.ndarray:
    """Return statistics as one row (1 + 2 M,)."""
    return np.concatenate([[statistics.count], statistics.total, statistics.squares])


def _fading_sums(before: np.ndarray, new_FN: np.ndarray, fading: float) -> np.ndarray:
    """Return the sums (F, N) after each new row: the row and `fading` times the sums before it.

    The rows are added one by one, so that pieces give the same sums as the whole, bit by bit.
    """
    from scipy.signal import lfilter

    return lfilter([1.0], [1.0, -fading], new_FN, axis=0, zi=fading * before[None])[0] if len(new_FN) else new_FN


def _unnormalized(
    config: FeatureConfig, sounds: Sequence[tuple[np.ndarray, float, int]], warp: float = 1.0
) -> np.ndarray:
    """Return the unnormalized features (F, M) of sounds, one after another.

    A sound has its samples, the sample before the first of them, and how many frames they complete.
    """
    total, width, hop = sum(count for *_, count in sounds), config.window_samples, config.hop_samples
    if not total:
        return np.zeros((0, config.features), np.float32)
    if config.kind == "kaldi":
        return _kaldi(config, np.concatenate([_windows(own_S, width, hop, count) for own_S, _, count in sounds]), warp)
    windows, raw = np.empty((total, width), np.float32), np.empty((total, width), np.float32)
    first = 0
    for own_S, before, count in sounds:
        emphasized = own_S - np.float32(PREEMPHASIS) * np.concatenate([[np.float32(before)], own_S[:-1]])
        for rows, of in ((windows, emphasized), (raw, own_S)):
            rows[first : first + count] = _windows(of, width, hop, count)
        first += count
    if not config.remove_dc_offset:
        return _spectra(config, windows, warp)
    # Of a window with an offset, pre-emphasis leaves this much.
    means = raw.astype(np.float64).mean(1, keepdims=True)
    return _spectra(config, windows - (1 - float(np.float32(PREEMPHASIS))) * means, warp)


def _windows(samples: np.ndarray, width: int, hop: int, count: int) -> np.ndarray:
    """Return the first windows (F, S) of samples, as a view."""
    return np.lib.stride_tricks.sliding_window_view(samples, width)[: count * hop : hop]


def _kaldi(config: FeatureConfig, windows: np.ndarray, warp: float) -> np.ndarray:
    """Return the features (F, M) of windows of samples as Kaldi's compute-fbank-feats does with no dither.

    Kaldi reads samples as integers of 16 bits, pre-emphasizes each window by itself, and has a window function, a mel
    scale and triangles of its own (Povey et al., 2011, "The Kaldi Speech Recognition Toolkit", and its source).
    """
    own = windows.astype(np.float64) * 32768
    if config.remove_dc_offset:
        own = own - own.mean(1, keepdims=True)
    own = own - PREEMPHASIS * np.concatenate([own[:, :1], own[:, :-1]], 1)
    shaped = own * np.hanning(config.window_samples) ** 0.85
    power_FK = np.abs(np.fft.rfft(shaped, config._fft_size)) ** 2
    bank = kaldi_bank(config.sample_rate, config._fft_size, config.bins, warp)
    return np.log(np.maximum(bank.dot(power_FK.T).T, np.finfo(np.float32).eps)).astype(np.float32)


def _spectra(config: FeatureConfig, windows: np.ndarray, warp: float) -> np.ndarray:
    """Return the unnormalized features (F, M) of windows of samples."""
    shaped = windows * _hann(config.window_samples)
    power_FK = np.abs(np.fft.rfft(shaped.astype(np.float64), config._fft_size)) ** 2
    # Sparse products: the order of a dense product's sums depends on the number of frames.
    if config.kind == "log_mel":
        power_FK = mel_bank(config.sample_rate, config._fft_size, config.bins, warp).dot(power_FK.T).T
    elif warp != 1:
        power_FK = _moved(config.frequencies, warp).dot(power_FK.T).T
    return np.log(np.maximum(power_FK, _FLOOR)).astype(np.float32)


@cache
def _hann(samples: int) -> np.ndarray:
    """Return a Hann window (S,)."""
    return np.hanning(samples).astype(np.float32)


@cache
def mel_bank(rate: int, fft_size: int, bins: int, warp: float = 1.0) -> sparse.csr_matrix:
    """Return triangular filters (M, K) equally spaced on the mel scale, m = 2595 log10(1 + f / 700), of height one.

    With a `warp` each filter is at the place of its edges divided by that factor: a sound seems to have frequencies so
    many times as high.
    """
    from scipy import sparse

    points = np.linspace(0, mel(rate / 2), bins + 2)
    edges = 700 * (10 ** (points / 2595) - 1)
    if warp != 1:
        edges = rate / 2 * warped(edges / (rate / 2), 1 / warp)
    frequencies = np.fft.rfftfreq(fft_size, 1 / rate)
    return sparse.csr_matrix(_triangles(edges, frequencies))


def _triangles(edges: np.ndarray, frequencies: np.ndarray) -> np.ndarray:
    """Return the heights (M, K) of triangles, each from one of the edges (M + 2,) over the next to the one after.

    A narrow triangle may fall between two frequencies: it has the nearest one alone.
    """
    rising = (frequencies[None] - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - frequencies[None]) / np.diff(edges)[1:, None]
    bank = np.maximum(0, np.minimum(rising, falling))
    for row, center in zip(bank, edges[1:-1], strict=True):
        if not row.any():
            row[np.abs(frequencies - center).argmin()] = 1.0
    return bank


@cache
def kaldi_bank(rate: int, fft_size: int, bins: int, warp: float = 1.0) -> sparse.csr_matrix:
    """Return Kaldi's filters (M, K): triangles on the mel scale itself, m = 1127 log(1 + f / 700), from 20 Hz on."""
    from scipy import sparse

    def kaldi_mel(frequency: np.ndarray) -> np.ndarray:
        return 1127 * np.log(1 + frequency / 700)

    ends = kaldi_mel(np.array([_KALDI_LOWEST, rate / 2]))
    points = np.linspace(ends[0], ends[1], bins + 2)
    if warp != 1:
        points = kaldi_mel(rate / 2 * warped(700 * (np.exp(points / 1127) - 1) / (rate / 2), 1 / warp))
    bank = _triangles(points, kaldi_mel(np.fft.rfftfreq(fft_size, 1 / rate)))
    bank[:, -1] = 0.0  # Kaldi leaves out the highest frequency
    return sparse.csr_matrix(bank)


def warped(frequencies: np.ndarray, factor: float) -> np.ndarray:
    """Multiply frequencies, from 0 to 1 for the highest of a spectrum, by a factor; 1 stays 1.

    Up to 0.6, or less for a factor above 1, they are multiplied.  From there on they rise evenly to 1 (Jaitly and
    Hinton, 2013, "Vocal Tract Length Perturbation (VTLP) improves speech recognition", with 4,800 of 8,000 Hz).
    """
    end = _WARPED * min(1.0, 1 / factor)
    return np.where(frequencies <= end, factor * frequencies, 1 - (1 - factor * end) / (1 - end) * (1 - frequencies))


@cache
def _moved(count: int, warp: float) -> sparse.csr_matrix:
    """Return the matrix (K, K) that moves the powers of a spectrum to frequencies `warp` times as high."""
    from scipy import sparse

    places = (count - 1) * warped(np.linspace(0, 1, count), 1 / warp)
    below = np.minimum(places.astype(int), count - 2)
    share, rows = places - below, np.arange(count)
    values, columns = np.concatenate([1 - share, share]), np.concatenate([below, below + 1])
    return sparse.csr_matrix((values, (np.concatenate([rows, rows]), columns)), (count, count))


def mel(frequency: np.ndarray | float) -> np.ndarray:
    """Return frequencies in Hz on the mel scale."""
    return 2595 * np.log10(1 + np.asarray(frequency) / 700)

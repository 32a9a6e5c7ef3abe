"""From a waveform to frames of features, whole or as the sound comes in: the same bits either way.

Each frame is computed by itself from its own samples, in one order of operations, so that it does not matter how many
are computed at a time.

Legend: S samples of sound, F frames, K frequencies, M features of a frame.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np

from ernie.errors import UserError

if TYPE_CHECKING:
    from scipy import sparse

_FLOOR = 1e-10  # of a power, before its logarithm
_LEAST = 1e-2  # of the variance of a feature: what is nearly always the same is not blown up by dividing
PREEMPHASIS = 0.97  # of the sample before, which is taken off each


@dataclass(frozen=True)
class FeatureConfig:
    """What of a sound an encoder hears.

    Windows of `window` seconds, one every `hop` seconds, of sound with `rate` samples a second.  `kind` is log_mel,
    the logarithm of the power in `bins` bands of the mel scale, or linear, that of every frequency (Amodei et al.,
    2016, arXiv 1512.02595).  `normalize`: over each utterance, over the training set (global), as it comes in with
    what was heard so far (streaming), or none.  An utterance's own mean is known at its end only: such features
    cannot stream.
    """

    kind: Literal["log_mel", "linear"] = "log_mel"
    rate: int = 8000
    window: float = 0.025
    hop: float = 0.010
    bins: int = 40
    normalize: Literal["utterance", "global", "streaming", "none"] = "global"

    def __post_init__(self) -> None:
        if self.rate < 1000:
            raise UserError(f"rate: expected at least 1,000 samples a second, found {self.rate}")
        if not 0 < self.hop <= self.window:
            raise UserError(f"hop: expected more than 0 and at most the window, {self.window:g} s, found {self.hop:g}")
        if self.window_samples < 16:
            raise UserError(f"window: {self.window:g} s are {self.window_samples} samples, too few for a spectrum")
        if self.kind == "log_mel" and not 1 <= self.bins <= self.frequencies // 2:
            raise UserError(
                f"bins: expected 1 to {self.frequencies // 2}, as many bands as {self.frequencies} frequencies tell "
                f"apart, found {self.bins}"
            )

    @property
    def window_samples(self) -> int:
        """The samples of a window."""
        return round(self.window * self.rate)

    @property
    def hop_samples(self) -> int:
        """The samples from one window to the next."""
        return max(1, round(self.hop * self.rate))

    @property
    def frequencies(self) -> int:
        """How many frequencies a spectrum has."""
        return self._transformed // 2 + 1

    @property
    def features(self) -> int:
        """The features of a frame."""
        return self.bins if self.kind == "log_mel" else self.frequencies

    def frames(self, samples: int) -> int:
        """How many frames so many samples give."""
        return max(0, 1 + (samples - self.window_samples) // self.hop_samples)

    @property
    def _transformed(self) -> int:
        return 2 ** math.ceil(math.log2(self.window_samples))


def features(config: FeatureConfig, samples: np.ndarray, around: Statistics | None = None) -> np.ndarray:
    """The features (F, M) of a whole sound (S,); `around` are the statistics that `global` features need."""
    found_FM = FeatureStream(config, around).push(FeatureState(), samples)[1]
    if config.normalize == "utterance" and len(found_FM):
        found_FM = Statistics.of(found_FM).apply(found_FM)
    return found_FM


@dataclass(frozen=True, eq=False)
class Statistics:
    """Sums over frames: how many there were, and the sums (M,) of features and of their squares."""

    count: int
    total: np.ndarray
    squares: np.ndarray

    @classmethod
    def of(cls, features_FM: np.ndarray) -> Statistics:
        """Those of some frames."""
        exact_FM = features_FM.astype(np.float64)
        return cls(len(exact_FM), exact_FM.sum(0), (exact_FM**2).sum(0))

    def and_of(self, other: Statistics) -> Statistics:
        """Those of both."""
        return Statistics(self.count + other.count, self.total + other.total, self.squares + other.squares)

    @classmethod
    def from_mean(cls, mean: np.ndarray, deviation: np.ndarray) -> Statistics:
        """Those of frames with this mean (M,) and deviation (M,)."""
        return cls(1, mean, deviation**2 + mean**2)

    def mean_and_deviation(self) -> tuple[np.ndarray, np.ndarray]:
        """The mean (M,) and the deviation (M,), which is at least a tenth."""
        mean = self.total / self.count
        return mean, np.sqrt(np.maximum(self.squares / self.count - mean**2, _LEAST))

    def apply(self, features_FM: np.ndarray) -> np.ndarray:
        """Features with these frames' mean taken off and divided by their deviation."""
        mean, deviation = self.mean_and_deviation()
        return ((features_FM - mean) / deviation).astype(np.float32)


@dataclass(frozen=True, eq=False)
class FeatureState:
    """What is known of a sound that comes in: samples that later frames need too, and what was heard so far.

    `last` is the sample before the first of `waiting`, `heard` sums of the frames so far.
    """

    waiting: np.ndarray = field(default_factory=lambda: np.zeros(0, np.float32))
    last: float = 0.0
    heard: Statistics | None = None

    def arrays(self) -> dict[str, np.ndarray]:
        """All that is known, as arrays by name."""
        found = {"waiting": self.waiting, "last": np.array(self.last)}
        if self.heard is not None:
            found |= {"count": np.array(self.heard.count), "total": self.heard.total, "squares": self.heard.squares}
        return found

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> FeatureState:
        """The state of which `arrays` gave these."""
        heard = Statistics(int(arrays["count"]), arrays["total"], arrays["squares"]) if "count" in arrays else None
        return cls(arrays["waiting"], float(arrays["last"]), heard)


class FeatureStream:
    """Features of sound that comes in pieces.  It keeps no state: `push` takes one and gives the next."""

    def __init__(self, config: FeatureConfig, around: Statistics | None = None):
        if config.normalize == "global" and around is None:
            raise ValueError("normalize: global needs the statistics of the training set")
        self._config, self._around = config, around

    def push(self, state: FeatureState, samples: np.ndarray) -> tuple[FeatureState, np.ndarray]:
        """More samples (S,); the frames (F, M) that are whole now."""
        config = self._config
        held = np.concatenate([state.waiting, samples.astype(np.float32)])
        count, hop = config.frames(len(held)), config.hop_samples
        if not count:
            return replace(state, waiting=held), np.zeros((0, config.features), np.float32)
        before = np.concatenate([[np.float32(state.last)], held[:-1]])
        sharp = held - np.float32(PREEMPHASIS) * before
        windows = np.lib.stride_tricks.sliding_window_view(sharp, config.window_samples)[: count * hop : hop]
        found_FM = _spectra(config, windows)
        used = count * hop
        # A hop may be as long as the window, and then the last sample before what waits is not among what waited.
        rest = FeatureState(held[used:].copy(), float(held[used - 1]), state.heard)
        if config.normalize == "streaming":
            return self._as_heard(rest, found_FM)
        if config.normalize == "global" and self._around is not None:
            return rest, self._around.apply(found_FM)
        return rest, found_FM

    def _as_heard(self, state: FeatureState, found_FM: np.ndarray) -> tuple[FeatureState, np.ndarray]:
        """Each frame normalized by itself and all before it."""
        exact_FM = found_FM.astype(np.float64)
        zero = np.zeros(exact_FM.shape[1])
        heard = state.heard or Statistics(0, zero, zero)
        # Cumulative sums go from the first frame to the last, so pieces give the same sums as the whole.
        totals = np.cumsum(np.concatenate([heard.total[None], exact_FM]), 0)[1:]
        squares = np.cumsum(np.concatenate([heard.squares[None], exact_FM**2]), 0)[1:]
        counts = (heard.count + np.arange(1, len(exact_FM) + 1))[:, None]
        mean = totals / counts
        deviation = np.sqrt(np.maximum(squares / counts - mean**2, _LEAST))
        now = Statistics(heard.count + len(exact_FM), totals[-1], squares[-1])
        return replace(state, heard=now), ((exact_FM - mean) / deviation).astype(np.float32)


def _spectra(config: FeatureConfig, windows: np.ndarray) -> np.ndarray:
    """The features (F, M) of windows of samples, not normalized."""
    shaped = windows * np.hanning(config.window_samples).astype(np.float32)
    power_FK = np.abs(np.fft.rfft(shaped.astype(np.float64), config._transformed)) ** 2
    if config.kind == "log_mel":
        # By a sparse matrix: a dense product's sums depend on how many frames there are.
        power_FK = mel_bank(config.rate, config._transformed, config.bins).dot(power_FK.T).T
    return np.log(np.maximum(power_FK, _FLOOR)).astype(np.float32)


@cache
def mel_bank(rate: int, transformed: int, bins: int) -> sparse.csr_matrix:
    """Triangles (M, K) at equal distances on the mel scale, m = 2595 log10(1 + f / 700), each of height one."""
    from scipy import sparse

    places = np.linspace(0, _mel(rate / 2), bins + 2)
    edges = 700 * (10 ** (places / 2595) - 1)
    frequencies = np.fft.rfftfreq(transformed, 1 / rate)
    rising = (frequencies[None] - edges[:-2, None]) / np.diff(edges)[:-1, None]
    falling = (edges[2:, None] - frequencies[None]) / np.diff(edges)[1:, None]
    bank = np.maximum(0, np.minimum(rising, falling))
    # A narrow triangle may fall between two frequencies: it takes the nearest.
    for row, middle in zip(bank, edges[1:-1], strict=True):
        if not row.any():
            row[np.abs(frequencies - middle).argmin()] = 1.0
    return sparse.csr_matrix(bank)


def _mel(frequency: float) -> float:
    return 2595 * math.log10(1 + frequency / 700)

"""A vocoder that is not learned: phases are found that fit the magnitudes of the frames, as the frames come.

Griffin and Lim (1984, IEEE TASSP 32(2)) alternate between a sound and its spectra, of which only the phases are kept.
In real time this is done for the newest frames only (Zhu, Beauregard and Wyse, 2007, IEEE TASLP 15(5), section III).

Legend: N sounds, F frames, D width, M features, K frequencies, W samples of a window, S samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from scipy.signal import lfilter

from ernie.audio.features import PREEMPHASIS, FeatureConfig, Statistics, mel_bank
from ernie.data import seeded_rng
from ernie.model.voice import FrameDecoder

if TYPE_CHECKING:
    from ernie.decode.synthesis import Past

_AHEAD = 3  # frames after the one whose phases become final
_TURNS = 4  # of each frame that is not final, whenever another one has come
_LEAST_WEIGHT = 1e-3  # of a sample near the edges of all windows
_SILENT = 1e-9  # the magnitude below which a frequency has no phase
_MOST_LOG = 30.0  # of a power, where exp is still small enough to be squared


class MagnitudeReader:
    """Predicts the frames of the decoder's states, and the magnitudes of their spectra."""

    def __init__(self, decoder: FrameDecoder, config: FeatureConfig, statistics: Statistics | None, reduction: int):
        self._decoder, self._config, self._reduction = decoder, config, reduction
        self._mean, self._deviation = np.zeros(config.features), np.ones(config.features)
        if statistics is not None:
            self._mean, self._deviation = statistics.mean_and_deviation()
        self._inverse_KM = np.eye(config.features)
        if config.kind == "log_mel":
            self._inverse_KM = np.linalg.pinv(mel_bank(config.sample_rate, _size(config), config.bins).toarray())
        self.reach = -(-(_overlap(config) + _AHEAD) // reduction)
        self.step_samples = reduction * config.hop_samples

    def read(self, states_NFD: np.ndarray, counts: Sequence[int]) -> np.ndarray:
        """Return the magnitudes (N, F, K) of the frames of the steps and of the `reach` steps after them."""
        frames = self._decoder.frames_of(states_NFD[:, self.reach :])
        logs_NFM = frames.reshape(len(frames), -1, self._config.features).astype(np.float64)
        powers_NFM = np.exp(np.minimum(logs_NFM * self._deviation + self._mean, _MOST_LOG))
        # Not a dense product: the order of its sums depends on the number of frames.
        powers_NFK = np.einsum("nfm,km->nfk", powers_NFM, self._inverse_KM, optimize=False)
        magnitudes_NFK = np.sqrt(np.maximum(powers_NFK, 0))
        for own_FK, count in zip(magnitudes_NFK, counts, strict=True):
            own_FK[max(0, count - self.reach) * self._reduction :] = 0  # silence after the last step
        return magnitudes_NFK


class GriffinLimVocoder:
    """Makes sound of the magnitudes of frames, each centered on the `hop` samples that it stands for.

    A sound's past has the samples that are final and not returned yet, then those of final frames that others still
    overlap, and the last sample returned; and the windows of the frames that are not final, (_AHEAD, W).
    """

    def __init__(self, config: FeatureConfig):
        width, hop = config.window_samples, config.hop_samples
        self._hop, self._width, self._size, self._overlap = hop, width, _size(config), _overlap(config)
        self._margin = (width - hop) // 2
        self._kept = self._overlap * hop - self._margin  # samples that are final before they are returned
        self._window = np.hanning(width)
        later = [self._window[j * hop :] ** 2 for j in range(1, -(-width // hop))]
        self._final = sum((np.pad(part, (0, width - len(part))) for part in later), np.zeros(width))
        self._weight = np.maximum((self._final + self._window**2)[:hop], _LEAST_WEIGHT)
        rng = seeded_rng.generator(0, "phases")
        self._turned_K = np.exp(1j * rng.uniform(0, 2 * np.pi, self._size // 2 + 1))  # where nothing is known yet

    def begin(self) -> Past:
        """Return the past of a sound before its first sample."""
        return np.zeros(self._kept + self._width + 1), np.zeros((0, self._width))

    def more(
        self, pasts: Sequence[Past], magnitudes_NFK: np.ndarray, noise_NS: np.ndarray
    ) -> tuple[list[Past], np.ndarray]:
        """Return the next samples (N, S) and the pasts of those that follow; of the noise only the size counts."""
        blocks = noise_NS.shape[1] // self._hop
        found = [self._more(*past, own, blocks) for past, own in zip(pasts, magnitudes_NFK, strict=True)]
        return [past for past, _ in found], np.stack([samples for _, samples in found]).astype(np.float32)

    def _more(
        self, kept: np.ndarray, windows: np.ndarray, magnitudes_FK: np.ndarray, blocks: int
    ) -> tuple[Past, np.ndarray]:
        hop, known = self._hop, self._overlap + _AHEAD  # frames that were there for the samples before
        ready, sums, last = kept[: self._kept], kept[self._kept : -1].copy(), kept[-1]
        open_frames, begun = [*windows], len(windows) > 0
        first, made = (self._overlap, [ready]) if begun else (0, [])  # `first` of the frames that are not final
        for frame in range(known if begun else 0, known + blocks):
            open_frames.append(np.zeros(self._width))
            self._improve(sums, open_frames, magnitudes_FK[first : frame + 1])
            if len(open_frames) > _AHEAD:
                sums += open_frames.pop(0)
                made.append(sums[:hop] / self._weight)
                sums = np.concatenate([sums[hop:], np.zeros(hop)])
                first += 1
        sound = np.concatenate(made)[0 if begun else self._margin :]
        size = blocks * hop
        samples, _ = lfilter([1], [1, -PREEMPHASIS], sound[:size], zi=[PREEMPHASIS * last])
        after = np.concatenate([sound[size:], sums, samples[-1:]])
        return (after, np.stack(open_frames)), np.clip(samples, -1, 1)

    def _improve(self, sums: np.ndarray, frames: list[np.ndarray], magnitudes_FK: np.ndarray) -> None:
        """Give the frames that are not final phases that fit each other and the final ones, in place."""
        hop, width = self._hop, self._width
        length = (len(frames) - 1) * hop + width
        weights, before = np.zeros(length), np.zeros(length)
        weights[:width], before[:width] = self._final, sums
        for j in range(len(frames)):
            weights[j * hop : j * hop + width] += self._window**2
        weights = np.maximum(weights, _LEAST_WEIGHT)
        for _ in range(_TURNS):
            total = before.copy()
            for j, frame in enumerate(frames):
                total[j * hop : j * hop + width] += frame
            total /= weights
            parts = np.stack([total[j * hop : j * hop + width] for j in range(len(frames))])
            spectra_FK = np.fft.rfft(parts * self._window, self._size)
            sizes_FK = np.abs(spectra_FK)
            turned_FK = np.where(sizes_FK > _SILENT, spectra_FK / np.maximum(sizes_FK, _SILENT), self._turned_K)
            again = np.fft.irfft(magnitudes_FK * turned_FK, self._size)[:, :width] * self._window
            frames[:] = [*again]


def _size(config: FeatureConfig) -> int:
    """Return the size of the Fourier transform."""
    return 2 * (config.frequencies - 1)


def _overlap(config: FeatureConfig) -> int:
    """Return how many later frames a sample depends on."""
    return -(-((config.window_samples - config.hop_samples) // 2) // config.hop_samples)

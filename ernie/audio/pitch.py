"""The pitch of a voice: its fundamental frequency F0 where it is voiced, and pulses of that frequency.

Legend: F frames, S samples, K lags.
"""

from __future__ import annotations

import numpy as np

LOWEST, MIDDLE, HIGHEST = 60.0, 120.0, 400.0  # F0 of a voice in Hz
_BAND = 50.0, 900.0  # Hz in which F0 is looked for: without offsets and rumble, and without most formants
_ENOUGH = 8000  # samples a second in which F0 is looked for, at least if the sound has them
_WINDOW = 0.04  # seconds that are compared with what follows them
_VOICED, _AUDIBLE = 0.6, 0.005  # the autocorrelation of a voiced window, and its root mean square, at least
_NEARLY = 0.97  # of the highest autocorrelation
_FLOOR, _CEILING = 0.75, 1.5  # of the quartiles of F0, between which F0 is looked for again
_SHORTEST = 100  # samples that can be filtered
_CYCLE = 1 << 32  # phases are counted in parts of a cycle, so that their sums are exact
_HIGHEST_HARMONIC = round(0.49 * _CYCLE)  # in parts of a cycle a sample
PULSE_FEATURES = 2
_PITCH_WINDOW = _WINDOW + 1 / LOWEST  # seconds by which the pitch of a frame is found
_BLOCK = 1000  # windows that are looked at together


def voicing(samples_S: np.ndarray, rate: int, hop: int) -> tuple[np.ndarray, np.ndarray]:
    """Return F0 in Hz of each window of 40 ms, `hop` samples apart, 0 without a voice, and how alike it repeats, (F,).

    The second is the highest normalized autocorrelation of the window at a period, by which F0 is found.  What is below
    50 Hz or above 900 Hz is filtered out.  Formants turn around between two lags, and a multiple of the period fits
    better; an offset is alike at every lag.  So 8,000 samples a second are enough, and of sounds with more only some
    are looked at.  F0 that is far from most of the sound is looked for again near to it (De Looze and Hirst, 2008,
    "Detecting changes in key and range for the automatic modelling and coding of intonation").  Sounds are expected to
    be of a usual loudness, a standard deviation of about 0.1.
    """
    from scipy.signal import butter, sosfiltfilt

    if len(samples_S) > _SHORTEST and 2 * _BAND[1] < rate:
        samples_S = sosfiltfilt(butter(2, _BAND, "bandpass", fs=rate, output="sos"), samples_S)
    every = max(1, rate // _ENOUGH)
    starts, samples_S, slow = np.arange(0, len(samples_S), hop) // every, samples_S[::every], rate / every
    width, lags = round(_WINDOW * slow), np.arange(int(slow // HIGHEST) - 1, int(slow // LOWEST) + 2)
    starts = starts[starts < len(samples_S) - width - lags[-1]]
    blocks = (starts[first : first + _BLOCK] for first in range(0, len(starts), _BLOCK))
    each = [_alike(samples_S, block, width, lags) for block in blocks]
    alike_FK = np.concatenate([np.zeros((0, len(lags))), *(alike for alike, _ in each)])
    power_F = np.concatenate([np.zeros(0), *(power for _, power in each)])
    found_F, highest_F = _f0(alike_FK, slow / lags)
    usual = found_F[(highest_F >= _VOICED) & (power_F >= _AUDIBLE**2)]
    if len(usual):
        low, high = _FLOOR * np.quantile(usual, 0.25), _CEILING * np.quantile(usual, 0.75)
        strange = (found_F < low) | (found_F > high)
        found_F[strange], highest_F[strange] = _f0(alike_FK[strange], slow / lags, low, high)
    return np.where((highest_F >= _VOICED) & (power_F >= _AUDIBLE**2), found_F, 0.0), highest_F


def pitch_of_frames(samples_S: np.ndarray, rate: int, hop: int) -> np.ndarray:
    """Return F0 in Hz, 0 without a voice, of each frame of `hop` samples, from a window around its middle, (F,)."""
    around = round(_PITCH_WINDOW * rate)
    before = round(((_WINDOW + 1 / MIDDLE) * rate - hop) / 2)  # a window and its repetition are around the middle
    padded = np.pad(samples_S, (max(0, before), around - before + 4 * max(1, rate // _ENOUGH)))
    return voicing(padded[max(0, -before) :], rate, hop)[0][: len(samples_S) // hop]


def pulses(f0_S: np.ndarray, rate: int, phase: int = 0) -> tuple[np.ndarray, int]:
    """Return a tone and pulses of the frequency F0 of each sample, in Hz, (S, 2), and the phase of the sample after.

    Pulses have all harmonics below 0.49 of the sampling rate, in equal parts.  Where F0 is 0 both are 0.  Phases are in
    2^-32 cycles: sounds that are made in pieces are those that are made at once.
    """
    advance_S = np.round(np.asarray(f0_S, np.float64) / rate * _CYCLE).astype(np.int64)
    phase_S = (phase + np.cumsum(advance_S)) % _CYCLE
    angle_S = 2 * np.pi / _CYCLE * phase_S
    voiced_S = advance_S > 0
    harmonics_S = np.where(voiced_S, _HIGHEST_HARMONIC // np.maximum(advance_S, 1), 1)
    # The sum of cosines of all multiples of an angle: Dirichlet's kernel.
    half_S = np.sin(angle_S / 2)
    is_peak = np.abs(half_S) < 1e-6
    ratio_S = np.sin((harmonics_S + 0.5) * angle_S) / np.where(is_peak, 1.0, 2 * half_S) - 0.5
    sum_S = np.where(is_peak, harmonics_S, ratio_S) * np.sqrt(2 / harmonics_S)
    both_S2 = np.stack([np.sqrt(2) * np.sin(angle_S), sum_S], axis=-1) * voiced_S[:, None]
    return both_S2.astype(np.float32), int(phase_S[-1]) if len(phase_S) else phase


def _alike(
    samples_S: np.ndarray, starts_F: np.ndarray, width: int, lags_K: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the normalized autocorrelation at each lag of windows that start there, (F, K), and their power, (F,)."""
    length = width + int(lags_K[-1])
    parts_FL = np.lib.stride_tricks.sliding_window_view(samples_S, length)[starts_F].astype(np.float64)
    size = 1 << (length - 1).bit_length()  # at least as long as a part: what wraps around is at no lag of these
    own = np.fft.rfft(parts_FL[:, :width], size)
    products_FK = np.fft.irfft(np.fft.rfft(parts_FL, size) * own.conj(), size)[:, lags_K]
    sums = np.pad(np.cumsum(parts_FL**2, axis=1), ((0, 0), (1, 0)))
    energy_FK, energy_F = sums[:, lags_K + width] - sums[:, lags_K], sums[:, width]
    return products_FK / np.sqrt(energy_F[:, None] * energy_FK + 1e-9), energy_F / width


def _f0(
    alike_FK: np.ndarray, hertz_K: np.ndarray, low: float = 0.0, high: float = np.inf
) -> tuple[np.ndarray, np.ndarray]:
    """F0 of each window by its autocorrelation at lags of these frequencies, and the autocorrelation, 0 without one.

    F0 is the first maximum that is nearly as high as the highest, for twice a period repeats as well.  A lag at the
    edge is no maximum: what is slower or faster than a voice is alike there.
    """
    before, here, after = alike_FK[:, :-2], alike_FK[:, 1:-1], alike_FK[:, 2:]
    is_near = (hertz_K[1:-1] >= low) & (hertz_K[1:-1] <= high)
    is_peak = (here >= before) & (here > after) & (here > 0) & is_near
    slope, bend = before - after, np.where(is_peak, before - 2 * here + after, -1.0)
    off = 0.5 * slope / bend  # the vertex of a parabola, from the middle
    heights = np.where(is_peak, here - 0.25 * slope * off, -np.inf)
    first_F = np.argmax(heights >= _NEARLY * heights.max(1, initial=-np.inf)[:, None], axis=1)
    lags_F = first_F + 1 + off[np.arange(len(off)), first_F]
    found_F = 1 / np.interp(lags_F, np.arange(len(hertz_K)), 1 / hertz_K)
    return np.where(is_peak.any(1), found_F, 0.0), np.where(is_peak, here, 0.0).max(1, initial=0.0)

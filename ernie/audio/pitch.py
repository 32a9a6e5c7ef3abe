"""The pitch of a voice: its fundamental frequency F0 where it is voiced, and pulses of that frequency.

Legend: F frames, S samples, K lags.
"""

from __future__ import annotations

import numpy as np

LOWEST, HIGHEST = 60.0, 400.0  # F0 of a voice in Hz
_FORMANTS = 900.0  # Hz above which F0 is not looked for
_ENOUGH = 8000  # samples a second in which F0 is looked for, at least if the sound has them
_WINDOW = 0.04  # seconds that are compared with what follows them
_VOICED, _AUDIBLE = 0.6, 0.005  # the autocorrelation of a voiced window, and its root mean square, at least
_NEARLY = 0.95  # of the highest autocorrelation
_SHORTEST = 100  # samples that can be filtered
_CYCLE = 1 << 32  # phases are counted in parts of a cycle, so that their sums are exact
_HIGHEST_HARMONIC = round(0.49 * _CYCLE)  # in parts of a cycle a sample
PULSE_FEATURES = 2
PITCH_WINDOW = _WINDOW + 1 / LOWEST  # seconds by which the pitch of a frame is found


def voicing(samples_S: np.ndarray, rate: int, hop: int) -> tuple[np.ndarray, np.ndarray]:
    """Return F0 in Hz of each window of 40 ms, `hop` samples apart, 0 without a voice, and how alike it repeats, (F,).

    The second is the highest normalized autocorrelation of the window, by which F0 is found.  Formants above 900 Hz are
    filtered out: between two lags they turn around, and a multiple of the period fits better.  So 8,000 samples a
    second are enough, and of sounds with more only some are looked at.
    """
    from scipy.signal import butter, sosfiltfilt

    if len(samples_S) > _SHORTEST and 2 * _FORMANTS < rate:
        samples_S = sosfiltfilt(butter(4, _FORMANTS, fs=rate, output="sos"), samples_S)
    every = max(1, rate // _ENOUGH)
    starts, samples_S, slow = np.arange(0, len(samples_S), hop) // every, samples_S[::every], rate / every
    width, lags = round(_WINDOW * slow), np.arange(int(slow // HIGHEST), int(slow // LOWEST) + 1)
    starts = starts[starts < len(samples_S) - width - lags[-1]]
    found, highest = np.zeros(len(starts)), np.zeros(len(starts))
    for number, first in enumerate(starts):
        part = samples_S[first : first + width + lags[-1]].astype(np.float64)
        own, others = part[:width], np.lib.stride_tricks.sliding_window_view(part, width)[lags]
        alike_K = others @ own / np.sqrt((own @ own) * (others**2).sum(1) + 1e-9)
        highest[number] = alike_K.max()
        if highest[number] >= _VOICED and np.sqrt((own**2).mean()) >= _AUDIBLE:
            found[number] = slow / (lags[0] + _first_peak(alike_K))
    return found, highest


def pitch_of_frames(samples_S: np.ndarray, rate: int, hop: int) -> np.ndarray:
    """Return F0 in Hz, 0 without a voice, of each frame of `hop` samples, from a window around its middle, (F,)."""
    around = round(_WINDOW * rate) + int(rate // LOWEST)
    before = (around - hop) // 2
    padded = np.pad(samples_S, (max(0, before), around - before + 2 * max(1, rate // _ENOUGH)))
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


def _first_peak(alike_K: np.ndarray) -> float:
    """The place of the first maximum that is nearly as high as the highest: twice a period repeats as well."""
    at = int(np.argmax(alike_K >= _NEARLY * alike_K.max()))
    while at + 1 < len(alike_K) and alike_K[at + 1] > alike_K[at]:
        at += 1
    if not 0 < at < len(alike_K) - 1:
        return at
    before, here, after = alike_K[at - 1 : at + 2]
    return at + 0.5 * (before - after) / (before - 2 * here + after)  # the vertex of a parabola

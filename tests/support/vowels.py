"""Vowels: pulses of a voice in a vocal tract."""

from __future__ import annotations

import numpy as np
from scipy.signal import lfilter

RATE = 8000


def vowel(pitch: float, formants: tuple[float, ...], seconds: float = 0.3) -> np.ndarray:
    """Pulses of the voice, `pitch` a second, in a vocal tract with resonances at the formants."""
    sound = np.zeros(round(seconds * RATE))
    for place in np.arange(1, len(sound) - 1, RATE / pitch):  # between two samples
        sound[int(place) + np.arange(2)] += 1 - place % 1, place % 1
    radius = np.exp(-np.pi * 80 / RATE)
    for formant in formants:
        sound = lfilter([1.0], [1, -2 * radius * np.cos(2 * np.pi * formant / RATE), radius**2], sound)
    return (0.3 * sound / np.abs(sound).max()).astype(np.float32)

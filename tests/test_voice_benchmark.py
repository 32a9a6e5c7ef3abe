"""The benchmark of voices: F0 of vowels, and how far two voices are apart."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from scipy.signal import lfilter
from support.helpers import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import synthesis

RATE = synthesis.RATE


def vowel(pitch: float, formants: tuple[float, ...], seconds: float = 0.3) -> np.ndarray:
    """Pulses of the voice, `pitch` a second, in a vocal tract with resonances at the formants."""
    sound = np.zeros(round(seconds * RATE))
    for place in np.arange(1, len(sound) - 1, RATE / pitch):  # between two samples
        sound[int(place) + np.arange(2)] += 1 - place % 1, place % 1
    radius = np.exp(-np.pi * 80 / RATE)
    for formant in formants:
        sound = lfilter([1.0], [1, -2 * radius * np.cos(2 * np.pi * formant / RATE), radius**2], sound)
    return (0.3 * sound / np.abs(sound).max()).astype(np.float32)


@pytest.mark.parametrize("formants", [(700.0, 1200.0, 2500.0), (300.0, 2300.0, 3000.0), (500.0, 1500.0, 2500.0)])
@pytest.mark.parametrize("pitch", [65.0, 110.0, 220.0, 300.0, 390.0])
def test_the_f0_of_a_vowel_is_that_of_its_pulses(pitch: float, formants: tuple[float, ...]) -> None:
    found = synthesis.pitch(vowel(pitch, formants))
    assert len(found) > 10
    np.testing.assert_allclose(found, pitch, rtol=0.03)  # the first window has the beginning
    np.testing.assert_allclose(np.median(found), pitch, rtol=0.001)


def test_noise_and_silence_have_no_f0() -> None:
    hiss = np.random.default_rng(0).normal(0, 0.1, RATE).astype(np.float32)
    assert (synthesis.pitch(hiss) == 0).mean() > 0.9
    assert not synthesis.pitch(np.zeros(RATE, np.float32)).any()
    assert len(synthesis.pitch(np.zeros(10, np.float32))) == 0


def test_the_error_of_f0_is_in_cents_where_both_are_voiced() -> None:
    recorded = np.array([100.0, 100.0, 0.0, 100.0, 0.0])
    made = np.array([100 * 2 ** (50 / 1200), 130.0, 100.0, 0.0, 0.0])
    errors = synthesis.pitch_errors(np.stack([made, recorded]))
    assert errors["cents of F0"] == pytest.approx((50 + 1200 * np.log2(1.3)) / 2)
    assert errors["F0 off by a fifth"] == 1 / 2
    assert errors["voiced in one only"] == 2 / 4
    assert synthesis.pitch_errors(np.zeros((2, 3))) == {}

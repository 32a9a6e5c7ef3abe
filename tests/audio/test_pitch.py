"""Pitch: F0 of vowels and of frames, and pulses that have it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.vowels import RATE, vowel

from ernie.audio.pitch import pitch_of_frames, pulses, voicing

HOP = 80


@pytest.mark.parametrize("formants", [(700.0, 1200.0, 2500.0), (300.0, 2300.0, 3000.0), (500.0, 1500.0, 2500.0)])
@pytest.mark.parametrize("pitch", [65.0, 110.0, 220.0, 300.0, 390.0])
def test_the_f0_of_a_vowel_is_that_of_its_pulses(pitch: float, formants: tuple[float, ...]) -> None:
    found = voicing(vowel(pitch, formants), RATE, HOP)[0]
    assert len(found) > 10
    np.testing.assert_allclose(found, pitch, rtol=0.03)  # the first window has the beginning
    np.testing.assert_allclose(np.median(found), pitch, rtol=0.001)


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 24000, 48000])
def test_f0_is_found_at_any_sampling_rate_and_frames_keep_their_places(rate: int) -> None:
    times = np.arange(2 * rate) / rate
    f0 = np.where(times < 1, 100.0, 180.0)
    sound = 0.05 * pulses(f0, rate)[0][:, 1] * ((times > 0.5) & (times < 1.5))
    found = pitch_of_frames(sound, rate, rate // 100)
    assert len(found) == len(sound) // (rate // 100)
    np.testing.assert_allclose(found[55:95], 100.0, rtol=0.01)
    np.testing.assert_allclose(found[105:145], 180.0, rtol=0.01)
    assert not found[:46].any()
    assert not found[-46:].any()


@pytest.mark.parametrize("added", ["offset", "hum", "rumble"])
def test_an_offset_or_a_hum_is_no_voice(added: str) -> None:
    times = np.arange(3 * RATE) / RATE
    sound = np.concatenate([np.zeros(RATE), vowel(110.0, (500.0, 1500.0), 1.0), np.zeros(RATE)])
    sound += np.random.default_rng(0).normal(0, 0.001, len(sound))
    sound += {"offset": 0.02 + 0 * times, "hum": 0.004 * np.sin(2 * np.pi * 30 * times), "rumble": 0.01 * times}[added]
    found = pitch_of_frames(sound.astype(np.float32), RATE, HOP)
    assert (found[:95] > 0).mean() < 0.05
    assert (found[205:] > 0).mean() < 0.05
    np.testing.assert_allclose(found[105:195], 110.0, rtol=0.02)


def test_the_pitch_of_a_glide_is_that_of_the_middle_of_each_frame() -> None:
    times = np.arange(RATE) / RATE
    f0 = 100.0 + 60.0 * times
    found = pitch_of_frames(0.1 * pulses(f0, RATE)[0][:, 1], RATE, HOP)
    middles = f0[HOP // 2 :: HOP]
    np.testing.assert_allclose(found[6:-6], middles[6:-6], atol=0.35)  # half a frame is 0.3 Hz


def test_an_octave_that_one_window_seems_to_have_is_corrected_by_the_others() -> None:
    """For a tenth of a second the even harmonics are much louder."""
    f0 = np.full(RATE, 100.0)
    even = pulses(2 * f0, RATE)[0][:, 1]
    is_even = (np.arange(RATE) > 4000) & (np.arange(RATE) < 4800)
    found = pitch_of_frames(0.1 * np.where(is_even, even, pulses(f0, RATE)[0][:, 1]), RATE, HOP)
    np.testing.assert_allclose(found[5:-5], 100.0, rtol=0.03)


def test_noise_and_silence_have_no_f0() -> None:
    hiss = np.random.default_rng(0).normal(0, 0.1, RATE).astype(np.float32)
    assert (voicing(hiss, RATE, HOP)[0] == 0).mean() > 0.9
    assert not voicing(np.zeros(RATE, np.float32), RATE, HOP)[0].any()
    assert len(voicing(np.zeros(10, np.float32), RATE, HOP)[0]) == 0


def test_a_frame_has_the_pitch_of_the_sound_around_its_middle() -> None:
    sound = np.concatenate([np.zeros(20 * HOP), vowel(110.0, (500.0, 1500.0), seconds=0.4), np.zeros(20 * HOP)])
    found = pitch_of_frames(sound.astype(np.float32), RATE, HOP)
    assert len(found) == len(sound) // HOP == 80
    (voiced,) = np.nonzero(found)
    np.testing.assert_allclose([voiced[0], voiced[-1]], [20, 59], atol=3)  # windows are of six frames
    np.testing.assert_allclose(found[25:55], 110.0, rtol=0.01)
    assert len(pitch_of_frames(np.zeros(HOP - 1, np.float32), RATE, HOP)) == 0


@pytest.mark.parametrize("rate", [8000, 16000])
@pytest.mark.parametrize("f0", [60.0, 123.4, 400.0])
def test_pulses_have_their_frequency_and_equal_harmonics_below_half_the_rate(rate: int, f0: float) -> None:
    tone, made = pulses(np.full(rate, f0), rate)[0].T
    np.testing.assert_allclose([(tone**2).mean(), (made**2).mean()], 1, rtol=0.02)
    spectrum = np.abs(np.fft.rfft(made * np.hanning(rate)))  # a bin is 1 Hz
    harmonics = np.arange(1, int(0.49 * rate / f0) + 1) * f0
    height = np.array([spectrum[round(place) - 1 : round(place) + 2].max() for place in harmonics])
    np.testing.assert_allclose(height, np.median(height), rtol=0.2)
    between = spectrum[(np.round(harmonics + f0 / 2)).astype(int)]
    assert between.max() < 1e-3 * np.median(height)
    assert np.abs(np.fft.rfft(tone * np.hanning(rate))).argmax() == pytest.approx(f0, abs=1)


@settings(max_examples=50, deadline=None)
@given(
    f0=st.lists(st.sampled_from([0.0, 0.0, 60.0, 99.9, 187.3, 400.0]), min_size=1, max_size=40),
    phase=st.integers(0, 2**32 - 1),
    cuts=st.lists(st.integers(0, 400), max_size=5),
)
def test_pulses_in_pieces_are_those_made_at_once(f0: list[float], phase: int, cuts: list[int]) -> None:
    each = np.repeat(f0, 10)
    whole, end = pulses(each, RATE, phase)
    places, parts, now = sorted({0, len(each), *(min(cut, len(each)) for cut in cuts)}), [], phase
    for first, last in pairwise(places):
        part, now = pulses(each[first:last], RATE, now)
        parts.append(part)
    np.testing.assert_array_equal(np.concatenate(parts), whole)
    assert now == end
    assert not whole[each == 0].any()
    assert np.isfinite(whole).all()

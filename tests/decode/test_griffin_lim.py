"""A vocoder that is not learned: sound whose spectra have the magnitudes that were asked for."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.toys import tones

from ernie.audio.features import PREEMPHASIS, FeatureConfig
from ernie.decode.griffin_lim import GriffinLimVocoder
from ernie.kernels.cpu.library import library

needs_kernels = pytest.mark.skipif(library() is None, reason="only the kernels in C++ promise the same last bits")
BLOCKS, MORE = 24, 16  # hops of sound, and frames after them
CONFIGS = [FeatureConfig(window=0.05, hop=0.0125), FeatureConfig(window=0.032, hop=0.012), FeatureConfig(hop=0.025)]
cuts = st.lists(st.integers(1, 9), min_size=1, max_size=6).map(
    lambda sizes: [0, *np.cumsum(sizes).clip(max=BLOCKS).tolist(), BLOCKS]
)


def magnitudes(config: FeatureConfig, sound: np.ndarray) -> np.ndarray:
    """The magnitudes (F, K) of frames that are centered on the hops of a sound."""
    margin = config.window_samples - config.hop_samples
    emphasized = sound - PREEMPHASIS * np.concatenate([[0.0], sound[:-1]])
    padded = np.pad(emphasized, (margin // 2, margin - margin // 2))
    windows = np.lib.stride_tricks.sliding_window_view(padded, config.window_samples)[:: config.hop_samples]
    return np.abs(np.fft.rfft(windows * np.hanning(config.window_samples), 2 * (config.frequencies - 1)))


def example(config: FeatureConfig, seed: int = 0) -> np.ndarray:
    """A sound of tones in noise, of whole hops."""
    size = BLOCKS * config.hop_samples
    sound = tones(["red", "blue", "green", "red"], np.random.default_rng(seed))["array"]
    return np.resize(np.array(sound, np.float64), size)


def made(config: FeatureConfig, asked_FK: np.ndarray, places: list[int]) -> np.ndarray:
    """The sound of these magnitudes, made in pieces."""
    vocoder, parts = GriffinLimVocoder(config), []
    pasts = [vocoder.begin()]
    padded_FK = np.pad(asked_FK, ((0, MORE), (0, 0)))
    for a, b in pairwise(places):
        if b > a:
            pasts, samples = vocoder.more(
                pasts, padded_FK[None, a : b + MORE], np.zeros((1, (b - a) * config.hop_samples))
            )
            parts.append(samples[0])
    return np.concatenate(parts)


@pytest.mark.parametrize("config", CONFIGS[:2], ids=["four windows overlap", "windows overlap unevenly"])
def test_the_sound_has_the_magnitudes_that_were_asked_for(config: FeatureConfig) -> None:
    asked = magnitudes(config, example(config))
    found = magnitudes(config, made(config, asked, [0, BLOCKS]))
    inner = slice(4, -4)  # at its ends the sound does not fade, as speech does
    assert np.linalg.norm((found - asked)[inner]) < 0.15 * np.linalg.norm(asked[inner])
    noise = magnitudes(config, np.random.default_rng(1).normal(0, 0.1, BLOCKS * config.hop_samples))
    assert np.linalg.norm((noise - asked)[inner]) > 0.6 * np.linalg.norm(asked[inner])


def test_a_tone_is_where_it_was() -> None:
    config = CONFIGS[0]
    tone = 0.3 * np.sin(2 * np.pi * 440 * np.arange(BLOCKS * config.hop_samples) / config.sample_rate)
    found = made(config, magnitudes(config, tone), [0, BLOCKS])[800:-800]
    spectrum = np.abs(np.fft.rfft(found * np.hanning(len(found)), 8 * config.sample_rate))
    assert spectrum.argmax() / 8 == pytest.approx(440, abs=2)
    assert found.std() == pytest.approx(tone.std(), rel=0.1)


@pytest.mark.parametrize("config", CONFIGS, ids=["four overlap", "uneven", "none overlaps"])
@settings(max_examples=10, deadline=None)
@given(places=cuts)
def test_a_sound_in_pieces_is_the_same_bit_for_bit(config: FeatureConfig, places: list[int]) -> None:
    asked = magnitudes(config, example(config))
    np.testing.assert_array_equal(made(config, asked, places), made(config, asked, [0, BLOCKS]))


def test_a_sound_among_others_is_the_same_bit_for_bit() -> None:
    config = CONFIGS[0]
    vocoder, nothing = GriffinLimVocoder(config), np.zeros((3, BLOCKS * config.hop_samples))
    asked_NFK = np.stack([np.pad(magnitudes(config, example(config, n)), ((0, MORE), (0, 0))) for n in range(3)])
    _, together = vocoder.more([vocoder.begin()] * 3, asked_NFK, nothing)
    for n in range(3):
        _, (alone,) = vocoder.more([vocoder.begin()], asked_NFK[n : n + 1], nothing[:1])
        np.testing.assert_array_equal(together[n], alone)

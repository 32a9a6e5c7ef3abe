"""Augmentation of sounds: each change is as large as it is set to be, drawn by seed, and none by default."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.signals import noise, tone

from ernie.audio.augment import (
    AugmentConfig,
    add_noise,
    change_volume,
    equalized,
    in_room,
    mask_spectrum,
    perturb_speed,
    shift_pitch,
    stretched,
    varied,
    vocal_tract_warp,
)
from ernie.audio.features import FeatureConfig, features, warped
from ernie.errors import UserError

RATE = 8000
Change = Callable[[np.ndarray, AugmentConfig, np.random.Generator], np.ndarray]
CHANGES: dict[str, Change] = {
    "speed": lambda samples, config, rng: perturb_speed(samples, RATE, config, rng),
    "pitch": lambda samples, config, rng: shift_pitch(samples, RATE, config, rng),
    "room": lambda samples, config, rng: in_room(samples, RATE, config, rng),
    "noise": lambda samples, config, rng: add_noise(samples, RATE, config, rng),
    "equalizer": lambda samples, config, rng: equalized(samples, RATE, config, rng),
    "volume": change_volume,
}
ON = AugmentConfig(speed=0.2, pitch=0.1, vocal_tract=0.1, room=(0.1, 0.6), noise=(5, 30), equalizer=10, volume=(-20, 6))


def power(samples: np.ndarray) -> float:
    return float((samples.astype(np.float64) ** 2).mean())


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("samples", [noise(3000), np.zeros(500, np.float32), np.zeros(0, np.float32), noise(1)])
def test_a_change_is_off_by_default_and_the_same_for_a_seed_otherwise(change: str, samples: np.ndarray) -> None:
    apply = CHANGES[change]
    untouched = np.random.default_rng(0)
    np.testing.assert_array_equal(apply(samples, AugmentConfig(), untouched), samples)
    assert untouched.integers(1 << 30) == np.random.default_rng(0).integers(1 << 30)  # nothing was drawn
    found = [apply(samples, ON, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert all(each.dtype == np.float32 and np.isfinite(each).all() for each in found)
    np.testing.assert_array_equal(found[0], found[1])
    if len(samples) > 1 and samples.any():
        assert len(found[0]) != len(found[2]) or (found[0] != found[2]).any()


def test_masks_zero_out_time_spans_and_bands_and_nothing_else() -> None:
    config = AugmentConfig(time_masks=2, time_width=10, freq_masks=1, freq_width=6)
    before = np.ones((100, 40), np.float32)
    after = mask_spectrum(before, config, np.random.default_rng(3))
    assert (before == 1).all()
    frames, bins = (after == 0).all(1), (after == 0).all(0)
    assert 0 < frames.sum() <= 20
    assert 0 < bins.sum() <= 6
    assert (after[~frames][:, ~bins] == 1).all()


def test_masks_leave_most_of_a_short_sound() -> None:
    config = AugmentConfig(time_masks=2, time_width=50, freq_masks=2, freq_width=30)
    for seed in range(20):
        after = mask_spectrum(np.ones((9, 20), np.float32), config, np.random.default_rng(seed))
        assert after.sum() >= 9 * 20 * 4 / 9 - 1e-6


@pytest.mark.parametrize("name", ["speed", "pitch", "vocal_tract"])
def test_a_change_that_would_change_nothing_raises_a_user_error(name: str) -> None:
    with pytest.raises(UserError, match=rf"{name}: is counted in hundredths, and 0\.004 is less than one; give 0\.01"):
        AugmentConfig(**{name: 0.004})
    assert {vocal_tract_warp(AugmentConfig(vocal_tract=0.01), np.random.default_rng(i)) for i in range(30)} == {
        *(0.99, 1.0, 1.01)
    }


def test_speed_changes_length_and_pitch_alike() -> None:
    rng = np.random.default_rng(0)
    lengths = {len(perturb_speed(tone(500.0), 8000, AugmentConfig(speed=0.1), rng)) for _ in range(30)}
    assert min(lengths) >= 4000 / 1.1 - 2
    assert max(lengths) <= 4000 / 0.9 + 2
    assert len(lengths) > 5


def test_volume_changes_by_decibels_within_the_range() -> None:
    rng, config = np.random.default_rng(0), AugmentConfig(volume=(-20, 6))
    gains = [change_volume(np.ones(3, np.float32), config, rng)[0] for _ in range(200)]
    assert 0.1 <= min(gains) < 0.12
    assert 1.7 < max(gains) <= 2.0
    assert change_volume(noise(5), AugmentConfig(), rng) is not None
    np.testing.assert_array_equal(change_volume(noise(5), AugmentConfig(), rng), noise(5))
    for wrong in ((6, -20), (-100, 0), (0, 61)):
        with pytest.raises(UserError, match="volume: expected the lowest and the highest change, from -60 to 60 dB"):
            AugmentConfig(volume=wrong)


def loudest(samples: np.ndarray) -> float:
    """The frequency of the largest part of a sound."""
    return float(np.fft.rfftfreq(len(samples), 1 / RATE)[np.abs(np.fft.rfft(samples)).argmax()])


@settings(max_examples=30, deadline=None)
@given(st.floats(150, 800), st.floats(0.7, 1.5))
def test_a_stretched_tone_keeps_its_pitch_and_its_level(frequency: float, factor: float) -> None:
    samples = tone(frequency)
    longer = stretched(samples, RATE, factor)
    assert len(longer) == round(factor * len(samples)) and longer.dtype == np.float32
    assert loudest(longer) == pytest.approx(frequency, abs=6)
    assert power(longer[500:-500]) == pytest.approx(power(samples), rel=0.15)


def test_a_sound_that_is_not_stretched_is_the_same() -> None:
    np.testing.assert_allclose(stretched(noise(4000), RATE, 1.0), noise(4000), atol=1e-6)


def test_the_pitch_is_moved_by_its_share_and_the_length_is_kept() -> None:
    found = set()
    for seed in range(20):
        moved = shift_pitch(tone(400.0), RATE, AugmentConfig(pitch=0.1), np.random.default_rng(seed))
        assert len(moved) == len(tone(400.0))
        assert 356 <= loudest(moved) <= 444
        found.add(round(loudest(moved)))
    assert len(found) > 5 and min(found) < 380 and max(found) > 420


@settings(max_examples=30, deadline=None)
@given(st.floats(-5, 40), st.integers(0, 99))
def test_noise_has_the_power_that_the_ratio_says_and_no_offset(ratio: float, seed: int) -> None:
    samples = tone(440.0)
    heard = add_noise(samples, RATE, AugmentConfig(noise=(ratio, ratio)), np.random.default_rng(seed))
    added = heard.astype(np.float64) - samples
    assert 10 * np.log10(power(samples) / power(added)) == pytest.approx(ratio, abs=0.05)
    assert abs(added.mean()) < 1e-3 * np.sqrt(power(added)) + 1e-7


def test_noise_is_white_at_times_and_a_rumble_at_others() -> None:
    config, shares = AugmentConfig(noise=(0, 0)), []
    for seed in range(40):
        added = add_noise(tone(440.0), RATE, config, np.random.default_rng(seed)).astype(np.float64) - tone(440.0)
        spectrum = np.abs(np.fft.rfft(added)) ** 2
        shares.append(spectrum[: len(spectrum) // 8].sum() / spectrum.sum())
    assert min(shares) < 0.25 and max(shares) > 0.95


@settings(max_examples=20, deadline=None)
@given(st.floats(0.1, 1.0), st.integers(0, 99))
def test_a_room_sounds_on_and_fades_in_its_time(seconds: float, seed: int) -> None:
    click = np.zeros(2 * RATE, np.float32)
    click[0] = 1.0
    heard = in_room(click, RATE, AugmentConfig(room=(seconds, seconds)), np.random.default_rng(seed)).astype(float)
    assert power(heard) == pytest.approx(power(click), rel=1e-3)
    echoes = heard[1:] ** 2
    assert -0.1 <= 10 * np.log10(heard[0] ** 2 / echoes.sum()) <= 12.1
    left = echoes[::-1].cumsum()[::-1]  # Schroeder's integral
    early, late = (left[round(share * seconds * RATE)] for share in (0.1, 0.4))
    assert 10 * np.log10(early / late) == pytest.approx(18, abs=3)  # 60 dB in the whole time
    assert echoes[round(seconds * RATE) :].max() < 1e-12


@pytest.mark.parametrize("change", ["room", "noise"])
def test_only_a_fraction_of_sounds_gets_echoes_or_noise(change: str) -> None:
    setting = {"room": (0.2, 0.4)} if change == "room" else {"noise": (5, 30)}
    all_of_them, some = AugmentConfig(**setting), AugmentConfig(**setting, **{f"{change}_fraction": 0.3})
    samples, changed = noise(300), []
    for seed in range(400):
        heard = [CHANGES[change](samples, config, np.random.default_rng(seed)) for config in (all_of_them, some)]
        assert (heard[0] != samples).any()
        changed.append(bool((heard[1] != samples).any()))
    assert 0.2 < np.mean(changed) < 0.4


@given(st.integers(0, 1 << 30))
@settings(max_examples=30)
def test_an_equalizer_changes_each_frequency_by_at_most_its_decibels_and_not_the_power(seed: int) -> None:
    before = noise(8 * RATE)
    after = equalized(before, RATE, AugmentConfig(equalizer=10), np.random.default_rng(seed))
    assert power(after) == pytest.approx(power(before), rel=1e-3)
    gains = np.array([bands(after) / bands(before)])
    decibels = 10 * np.log10(gains)
    assert np.ptp(decibels) <= 20.5  # from -10 to 10, and what windows of finite length add
    assert np.ptp(decibels) > 0.5


def bands(samples: np.ndarray) -> np.ndarray:
    """The power of a sound in 64 bands."""
    windows = samples[: len(samples) // 1024 * 1024].reshape(-1, 1024) * np.hanning(1024)
    return (np.abs(np.fft.rfft(windows)) ** 2).mean(0)[1:].reshape(64, 8).mean(1)


def test_an_equalizer_delays_nothing() -> None:
    click = np.zeros(RATE, np.float32)
    click[RATE // 2] = 1.0
    heard = equalized(click, RATE, AugmentConfig(equalizer=10), np.random.default_rng(3))
    assert int(np.abs(heard).argmax()) == RATE // 2
    assert power(heard[: RATE // 4]) < 1e-4 * power(heard)


def test_all_that_can_be_heard_is_changed_in_turn_and_speed_where_the_sound_still_fits() -> None:
    one_by_one, rng, samples = tone(440.0), np.random.default_rng(5), tone(440.0)
    for change in CHANGES.values():  # in their order on the page
        one_by_one = change(one_by_one, ON, rng)
    assert len(one_by_one) != len(samples)
    np.testing.assert_array_equal(varied(samples, RATE, ON, np.random.default_rng(5)), one_by_one)
    kept = varied(samples, RATE, ON, np.random.default_rng(5), fits=lambda changed: len(changed) == len(samples))
    assert len(kept) == len(samples) and (kept != samples).any()


@pytest.mark.parametrize("kind", ["log_mel", "kaldi", "linear"])
@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_a_warp_moves_the_peak_of_a_tone_by_its_factor(kind, factor: float) -> None:
    config = FeatureConfig(kind=kind, normalize="none", bins=60)
    moved = features(config, tone(1500.0), warp=factor).mean(0)
    expected = features(config, tone(1500.0 * factor)).mean(0)
    assert abs(int(moved.argmax()) - int(expected.argmax())) <= 1
    assert moved.argmax() != features(config, tone(1500.0)).mean(0).argmax()


@given(st.floats(0.5, 2.0))
def test_warped_frequencies_rise_from_zero_to_the_highest(factor: float) -> None:
    found = warped(np.linspace(0, 1, 200), factor)
    assert found[0] == 0 and found[-1] == 1 and (np.diff(found) > 0).all()
    low = np.linspace(0, 1, 200) <= 0.6 * min(1, 1 / factor)
    np.testing.assert_allclose(found[low], factor * np.linspace(0, 1, 200)[low])


def test_no_warp_leaves_the_bits_of_features() -> None:
    for kind in ("log_mel", "kaldi", "linear"):
        config = FeatureConfig(kind=kind, normalize="none")
        np.testing.assert_array_equal(features(config, noise(4000)), features(config, noise(4000), warp=1.0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"room": (0.0, 0.5)}, r"room: expected the shortest and the longest time .* found \[0, 0.5\]"),
        ({"room": (0.5, 0.2)}, "room: expected the shortest"),
        ({"room": (0.5, 20)}, "up to 10 s"),
        ({"noise": (30, 5)}, "noise: expected the lowest and the highest ratio"),
        ({"noise": (-70, 5)}, "from -60 to 60 dB"),
        ({"equalizer": 30}, "equalizer: expected 0 to 20 dB, found 30"),
        ({"vocal_tract": 0.5}, "vocal_tract: expected at least 0 and less than 0.5"),
        ({"noise_files": ("noise",)}, "noise_files: how loud is their noise"),
        ({"noise": (5, 30), "noise_fraction": 0}, "noise_fraction: expected more than 0 and at most 1, found 0"),
        ({"room": (0.1, 0.5), "room_fraction": 1.5}, "room_fraction: expected more than 0 and at most 1, found 1.5"),
        ({"room_fraction": 0.5}, "room_fraction: says how many sounds get echoes, and none does; give room, too"),
        ({"room": (0.1, 0.5), "room_files": ("rooms",)}, "give it or room_files, not both"),
    ],
)
def test_ranges_that_make_no_sense_raise_a_user_error(changes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        AugmentConfig(**changes)

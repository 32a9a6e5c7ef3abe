"""Recorded noise and rooms: which files are meant, and what training sounds become with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
from support.signals import noise, tone

from ernie.audio.augment import AugmentConfig, add_noise, in_room
from ernie.audio.recordings import drawn_part, drawn_response, recordings, seconds_of
from ernie.errors import UserError

RATE = 8000


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Two recordings of noise, one of them short and of another rate, a room, and a file that is no sound."""
    (tmp_path / "noise" / "cars").mkdir(parents=True)
    soundfile.write(tmp_path / "noise" / "street.wav", 0.2 * noise(20000, 1), RATE)
    soundfile.write(tmp_path / "noise" / "cars" / "horn.flac", 0.3 * noise(1600, 2), 16000)
    (tmp_path / "noise" / "README.txt").write_text("noise")
    response = np.zeros(800)
    response[[100, 300, 500]] = [0.5, -0.25, 0.125]
    soundfile.write(tmp_path / "room.wav", response, RATE, subtype="FLOAT")
    for cached in (recordings, seconds_of):
        cached.cache_clear()
    yield tmp_path


def test_files_folders_and_patterns_mean_sound_files_in_order(folder: Path) -> None:
    street, horn = folder / "noise" / "street.wav", folder / "noise" / "cars" / "horn.flac"
    assert recordings((str(folder / "noise"),)) == (horn, street)
    assert recordings((str(folder / "noise" / "*.wav"), str(horn))) == (street, horn)
    assert recordings((str(folder / "**" / "*.flac"),)) == (horn,)
    assert recordings((str(street), str(folder / "noise"))) == (street, horn)
    for nothing in ("nowhere", str(folder / "*.ogg"), str(folder / "noise" / "missing.wav")):
        with pytest.raises(UserError, match="there is no sound file at"):
            recordings((nothing,))


def test_what_is_missing_or_no_sound_is_an_error_before_training_that_names_the_file(folder: Path) -> None:
    config = AugmentConfig(noise=(5, 30), noise_files=(str(folder / "noise"),), room_files=(str(folder / "room.wav"),))
    config.check_files(RATE)
    with pytest.raises(UserError, match=r"augment\.room_files: there is no sound file at .*/rooms; give"):
        AugmentConfig(room_files=(str(folder / "rooms"),)).check_files(RATE)
    (folder / "noise" / "wrong.wav").write_bytes(b"RIFF and nothing else")
    recordings.cache_clear()
    with pytest.raises(UserError, match=r"augment\.noise_files: .*wrong\.wav: is no sound that can be read"):
        config.check_files(RATE)


def test_a_recording_that_breaks_off_is_found_before_training(folder: Path) -> None:
    soundfile.write(folder / "noise" / "long.flac", 0.2 * noise(200000, 5), RATE)
    whole = (folder / "noise" / "long.flac").read_bytes()
    (folder / "noise" / "long.flac").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"augment\.noise_files: .*long\.flac: (breaks off|is no sound)"):
        AugmentConfig(noise=(5, 30), noise_files=(str(folder / "noise"),)).check_files(RATE)


def test_a_file_with_brackets_in_its_path_is_a_file(folder: Path) -> None:
    (folder / "[v1]").mkdir()
    soundfile.write(folder / "[v1]" / "a.wav", noise(800), RATE)
    assert recordings((str(folder / "[v1]" / "a.wav"),)) == (folder / "[v1]" / "a.wav",)


@pytest.mark.parametrize("count", [1, 4000, 30000])
def test_a_part_is_a_stretch_of_a_recording_and_a_short_one_is_repeated(count: int, folder: Path) -> None:
    file = folder / "noise" / "street.wav"
    whole = soundfile.read(file, dtype="float32")[0]
    found = drawn_part((file,), count, RATE, np.random.default_rng(3))
    assert len(found) == count
    endless = np.tile(whole, 3)
    starts = [start for start in range(len(whole)) if np.array_equal(endless[start : start + count], found)]
    assert starts
    other = drawn_part((file,), count, RATE, np.random.default_rng(4))
    assert count == 1 or (other != found).any()


def test_recorded_noise_has_the_power_that_the_ratio_says(folder: Path) -> None:
    config, samples = AugmentConfig(noise=(10, 10), noise_files=(str(folder / "noise"),)), tone(440.0)
    for seed in range(6):
        heard = add_noise(samples, RATE, config, np.random.default_rng(seed))
        added = heard.astype(np.float64) - samples
        ratio = 10 * np.log10((samples.astype(float) ** 2).mean() / (added**2).mean())
        assert ratio == pytest.approx(10, abs=0.05)
        again = add_noise(samples, RATE, config, np.random.default_rng(seed))
        np.testing.assert_array_equal(heard, again)


def test_a_recorded_room_adds_its_echoes_after_the_sound_and_keeps_its_power(folder: Path) -> None:
    config = AugmentConfig(room_files=(str(folder / "room.wav"),))
    response = drawn_response((folder / "room.wav",), RATE, np.random.default_rng(0))
    assert response[0] == 1.0
    assert dict(zip(*(part.tolist() for part in (np.flatnonzero(response), response[response != 0])), strict=True)) == {
        0: 1.0,
        200: -0.5,
        400: 0.25,
    }
    click = np.zeros(1000, np.float32)
    click[50] = 0.8
    heard = in_room(click, RATE, config, np.random.default_rng(0)).astype(float)
    assert np.flatnonzero(np.abs(heard) > 1e-6).tolist() == [50, 250, 450]
    assert heard[250] / heard[50] == pytest.approx(-0.5, rel=1e-3)
    assert (heard**2).sum() == pytest.approx(0.64, rel=1e-3)


def test_of_a_response_of_several_microphones_the_first_is_heard(folder: Path) -> None:
    alone = drawn_response((folder / "room.wav",), RATE, np.random.default_rng(0))
    response_SC = soundfile.read(folder / "room.wav")[0][:, None] * [1.0, 0.9]
    response_SC[:, 1] = np.roll(response_SC[:, 1], 7)  # which is farther away
    soundfile.write(folder / "rooms.wav", response_SC, RATE, subtype="FLOAT")
    found = drawn_response((folder / "rooms.wav",), RATE, np.random.default_rng(0))
    np.testing.assert_array_equal(found, alone)


def test_a_silent_response_is_refused(folder: Path) -> None:
    soundfile.write(folder / "silent.wav", np.zeros(100), RATE)
    with pytest.raises(UserError, match=r"augment\.room_files: .*silent\.wav: is silent"):
        AugmentConfig(room_files=(str(folder / "silent.wav"),)).check_files(RATE)
    with pytest.raises(UserError, match=r"silent\.wav: is silent, and no response of a room; leave it out"):
        drawn_response((folder / "silent.wav",), RATE, np.random.default_rng(0))

"""Sound files: decoding, mixing to one channel, resampling, and errors."""

from __future__ import annotations

import io
import os
import struct
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.audio.convert import Loudness, Resampler, is_clipped, resample
from ernie.audio.wave import Selection, Wave, WaveReader, as_samples, is_sound_file, pieces, read_wave
from ernie.errors import UserError

soundfile = pytest.importorskip("soundfile")
pytest.importorskip("soxr")


def tone(rate: int, seconds: float = 0.25) -> np.ndarray:
    return 0.5 * np.sin(2 * np.pi * 440 * np.arange(round(seconds * rate)) / rate)


@pytest.mark.parametrize("name", ["tone.wav", "tone.flac"])
def test_a_file_is_read_as_it_was_written(tmp_path: Path, name: str) -> None:
    soundfile.write(tmp_path / name, tone(8000), 8000)
    wave = read_wave(tmp_path / name, 8000)
    np.testing.assert_allclose(wave.samples, tone(8000), atol=1e-4)
    assert (wave.rate, wave.seconds, wave.remarks) == (8000, 0.25, ())


def test_mixing_channels_and_resampling_are_reported(tmp_path: Path) -> None:
    both = np.stack([tone(16000), tone(16000) / 2], 1)
    soundfile.write(tmp_path / "both.wav", both, 16000)
    wave = read_wave(tmp_path / "both.wav", 8000)
    assert wave.remarks == ("was mixed from 2 channels", "was resampled from 16,000 to 8,000 samples a second")
    np.testing.assert_allclose(wave.samples[200:-200], 0.75 * tone(8000)[200:-200], atol=5e-3)


def test_sound_is_read_from_an_open_file(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    soundfile.write(buffer, tone(8000), 8000, format="WAV")
    buffer.seek(0)
    assert len(read_wave(buffer, 8000).samples) == 2000


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda file: None, "there is no such file"),
        (lambda file: file.write_text("no sound"), "cannot be read as sound"),
        (lambda file: file.write_bytes(b""), "cannot be read as sound"),
        (lambda file: soundfile.write(file, np.zeros(0), 8000), "holds no samples"),
        (lambda file: soundfile.write(file, np.full(9, np.nan), 8000, "FLOAT"), "samples that are not numbers"),
    ],
)
def test_a_file_without_sound_raises_an_error_that_names_it(tmp_path: Path, make, message: str) -> None:
    file = tmp_path / "sound.wav"
    make(file)
    with pytest.raises(UserError, match=f"sound.wav: .*{message}"):
        read_wave(file, 8000)


def test_silence_and_clipping_are_reported(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "silent.wav", np.zeros(800), 8000)
    soundfile.write(tmp_path / "clipped.wav", np.clip(4 * tone(8000), -1, 1), 8000)
    assert read_wave(tmp_path / "silent.wav", 8000).remarks == ("is silent",)
    assert read_wave(tmp_path / "clipped.wav", 8000).remarks == ("is clipped",)


@pytest.mark.parametrize(
    ("name", "subtype"),
    [("a.wav", "PCM_U8"), ("a.aiff", "PCM_S8"), ("a.wav", "ULAW"), ("a.au", "ALAW"), ("a.wav", "PCM_16")],
)
def test_clipping_is_reported_where_full_scale_is_less_than_one(tmp_path: Path, name: str, subtype: str) -> None:
    for peak, remarks in ((4, ("is clipped",)), (1.9, ())):
        samples = np.clip(peak * np.abs(tone(8000)), 0, 1)  # above zero: below it some formats reach one
        soundfile.write(tmp_path / name, samples, 8000, subtype)
        assert read_wave(tmp_path / name, 8000).remarks == remarks


def test_clipping_of_a_single_channel_is_reported(tmp_path: Path) -> None:
    quiet, loud = tone(8000) / 1.5, np.clip(4 * tone(8000), -1, 1)
    soundfile.write(tmp_path / "both.wav", np.stack([quiet, loud], 1), 8000)
    assert read_wave(tmp_path / "both.wav", 8000).remarks == ("was mixed from 2 channels", "is clipped")


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_silence_and_clipping_are_detected_in_pieces_as_in_the_whole(size: int) -> None:
    for samples, remarks in (
        (np.clip(4 * tone(8000), -1, 1), ["is clipped"]),
        (np.zeros(800), ["is silent"]),
        (tone(8000), []),
    ):
        loudness = Loudness()
        for first in range(0, len(samples), size):
            loudness.add(samples[first : first + size])
        assert loudness.remarks == remarks


@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.parametrize(
    ("name", "kind", "subtype"),
    [
        *(("tone." + kind.lower(), kind, None) for kind in ("WAV", "AIFF", "AU", "MP3", "RF64", "W64", "FLAC")),
        ("vorbis.ogg", "OGG", "VORBIS"),
        ("opus.ogg", "OGG", "OPUS"),
    ],
)
def test_a_truncated_file_is_read_as_far_as_possible_and_reported(
    tmp_path: Path, name: str, kind: str, subtype: str | None, share: float
) -> None:
    file, noise = tmp_path / name, np.random.default_rng(0).normal(0, 0.02, 80_000)
    soundfile.write(file, tone(8000, seconds=10) + noise, 8000, subtype, format=kind)
    whole, written = read_wave(file, 8000), file.read_bytes()
    assert whole.remarks == ()
    file.write_bytes(written[: round(share * len(written))])
    wave = read_wave(file, 8000)
    damaged = "is damaged or " if kind == "FLAC" else ""
    assert wave.remarks == (f"is cut off: its file {damaged}ends too early",)
    assert 0.75 * share < len(wave.samples) / len(whole.samples) < 1.05 * share
    np.testing.assert_allclose(wave.samples, whole.samples[: len(wave.samples)], atol=1e-3)


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
@pytest.mark.parametrize(("samples", "suffix"), [(4800, b""), (80_000, b""), (80_000, b"TAG" + bytes(125))])
def test_a_complete_ogg_file_of_any_length_is_not_reported_as_cut_off(
    tmp_path: Path, subtype: str, samples: int, suffix: bytes
) -> None:
    file = tmp_path / "tone.ogg"
    soundfile.write(file, tone(8000, samples / 8000), 8000, subtype)
    file.write_bytes(file.read_bytes() + suffix)
    wave = read_wave(file, 8000)
    assert (len(wave.samples), wave.remarks) == (samples, ())


def test_an_ogg_file_without_its_last_page_is_reported_as_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "tone.ogg"
    soundfile.write(file, tone(8000, seconds=10) + np.random.default_rng(0).normal(0, 0.02, 80_000), 8000)
    written = file.read_bytes()
    file.write_bytes(written[: written.rindex(b"OggS")])
    assert read_wave(file, 8000).remarks == ("is cut off: its file ends too early",)


def test_a_flac_file_that_cannot_be_decoded_raises_a_user_error(tmp_path: Path) -> None:
    file = tmp_path / "tone.flac"
    soundfile.write(file, tone(8000), 8000)
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(UserError, match=r"tone\.flac: cannot be read as sound"):
        read_wave(file, 8000)


@pytest.mark.parametrize("named", [0xFFFFFFFF, 0x7FFFFFFF - 36])
def test_a_file_with_unknown_length_is_not_reported_as_cut_off(tmp_path: Path, named: int) -> None:
    file = tmp_path / "piped.wav"
    soundfile.write(file, tone(8000), 8000)
    written = bytearray(file.read_bytes())
    written[40:44] = struct.pack("<I", named)  # the size of the samples in bytes, after the word "data"
    file.write_bytes(written)
    wave = read_wave(file, 8000)
    assert (len(wave.samples), wave.remarks) == (2000, ())


@pytest.mark.parametrize("samples", [20_000, 5 * 4096])
def test_flac_written_to_a_pipe_is_read_to_its_end(tmp_path: Path, samples: int) -> None:
    file = tmp_path / "piped.flac"
    soundfile.write(file, tone(8000, samples / 8000), 8000)
    written = bytearray(file.read_bytes())
    written[21] &= 0xF0  # the 36 bits of the header that hold the number of samples
    written[22:26] = bytes(4)
    file.write_bytes(written)
    for source in (file, io.BytesIO(written)):
        wave = read_wave(source, 8000)
        np.testing.assert_allclose(wave.samples, tone(8000, samples / 8000), atol=1e-4)
        assert wave.remarks == ()


def test_a_single_sample_at_full_scale_is_not_clipping() -> None:
    samples = np.zeros(100)
    samples[50] = 1.0
    assert not is_clipped(samples)
    samples[50:54] = 1.0
    assert is_clipped(samples)


@pytest.mark.parametrize("kind", ["WAV", "WAVEX", "RF64", "W64", "FLAC", "OGG", "AIFF", "AU", "CAF"])
def test_a_sound_file_is_recognized_by_its_first_bytes(kind: str) -> None:
    buffer = io.BytesIO()
    soundfile.write(buffer, tone(8000), 8000, format=kind)
    assert is_sound_file(buffer.getvalue()[:4])
    assert is_sound_file(b"ID3\4")  # as an MP3 file with a title
    for samples in (tone(8000), np.zeros(8), np.ones(8), -np.ones(8)):
        assert not is_sound_file((32767 * samples).astype("<i2").tobytes())
    assert not is_sound_file(b"")


def test_the_pieces_add_up_to_the_whole() -> None:
    wave = Wave(np.arange(25, dtype=np.float32), 10)
    parts = list(pieces(wave, 0.7))
    assert [len(part) for part in parts] == [7, 7, 7, 4]
    np.testing.assert_array_equal(np.concatenate(parts), wave.samples)


def test_a_missing_or_headerless_file_raises_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no\.wav: there is no such file"):
        read_wave(tmp_path / "no.wav", 8000)
    (tmp_path / "said.raw").write_bytes(bytes(100))
    with pytest.raises(UserError, match=r"said\.raw: cannot be read as sound: .* - --sample-rate HZ < said\.raw"):
        read_wave(tmp_path / "said.raw", 8000)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.wav", b"", "it is empty"),
        ("a.m4a", b"\0\0\0\x20ftypM4A " + bytes(100), "it is MP4 or M4A; convert it, such as with: ffmpeg -i a.m4a"),
        ("a.webm", b"\x1aE\xdf\xa3" + bytes(100), "it is WebM or Matroska"),
        ("a.flac", b"version https://git-lfs.github.com/spec/v1\noid", "it is a Git LFS pointer: 'git lfs pull'"),
        ("a.wav", b"<!DOCTYPE html><html>404", "it is a web page"),
        ("a.wav", b"no sound", "its first bytes are those of no format of sound that is known here"),
        ("a.wav", b"RIFF\0\0\0\0WAVE", "No 'data' chunk marker"),
        ("a.pcm", bytes(3200), "it has samples alone, without a header"),
    ],
)
def test_what_is_no_sound_is_called_by_its_name(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=f"{name}: cannot be read as sound: .*{message}"):
        read_wave(tmp_path / name, 8000)


def test_devices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="/dev/zero: is a device, and a file is expected"):
        read_wave("/dev/zero", 8000)


@pytest.mark.parametrize("rate", [1, 999, 1_000_001, 10**9])
def test_rates_that_no_sound_has_are_refused(tmp_path: Path, rate: int) -> None:
    soundfile.write(tmp_path / "a.wav", tone(8000), rate)
    with pytest.raises(UserError, match=f"a.wav: its rate: expected 1,000 to 1,000,000 .* found {rate:,}"):
        read_wave(tmp_path / "a.wav", 8000)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e30])
@pytest.mark.parametrize("subtype", ["FLOAT", "DOUBLE"])
def test_samples_that_are_no_amplitudes_are_refused(tmp_path: Path, bad: float, subtype: str) -> None:
    samples = tone(8000, 2)
    samples[12_345] = bad
    soundfile.write(tmp_path / "a.wav", samples, 8000, subtype)
    with pytest.raises(UserError, match=r"a\.wav: (holds samples that are not numbers|expected samples between -1)"):
        read_wave(tmp_path / "a.wav", 8000)


def test_hours_of_silence_in_a_small_file_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with soundfile.SoundFile(tmp_path / "long.flac", "w", 8000, 1) as file:
        for _ in range(4):
            file.write(np.zeros(480_000, np.int16))
    assert (tmp_path / "long.flac").stat().st_size < 50_000
    sizes = [len(block) for block in WaveReader(tmp_path / "long.flac", 8000)]
    assert sum(sizes) == 1_920_000
    assert max(sizes) < 10_000
    monkeypatch.setattr("ernie.audio.wave._MOST_SAMPLES", 1_000_000)
    with pytest.raises(UserError, match=r"long\.flac: is longer than 0\.0 hours, the most that is read at once"):
        read_wave(tmp_path / "long.flac", 8000)


def test_a_thousand_channels_are_mixed_and_more_are_refused(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    soundfile.write(buffer, np.tile(tone(8000)[:200, None], 1000), 8000, format="WAV")
    np.testing.assert_allclose(read_wave(buffer, 8000, "a").samples, tone(8000)[:200], atol=1e-4)
    data = bytearray(buffer.getvalue())
    data[22:24] = struct.pack("<H", 10_000)
    with pytest.raises(UserError, match="a: cannot be read as sound"):
        read_wave(io.BytesIO(data), 8000, "a")


WRITTEN = [
    (kind, subtype)
    for kind in soundfile.available_formats()
    for subtype in soundfile.available_subtypes(kind)
    # What libsndfile cannot write, or cannot read again itself.
    if kind not in ("RAW", "SD2") and subtype not in ("MPEG_LAYER_I", "MPEG_LAYER_II") and "DWVW" not in subtype
]


MEASURED = "WAV WAVEX RF64 W64 FLAC OGG MP3 AIFF AU CAF NIST".split()  # files that show whether they are whole


@pytest.mark.parametrize(("kind", "subtype"), sorted(WRITTEN))
def test_every_format_that_can_be_written_is_read_and_so_are_its_segments(
    tmp_path: Path, kind: str, subtype: str
) -> None:
    file, rate = tmp_path / f"a.{kind.lower()}", 44_100 if kind == "XI" else 8000
    if subtype == "MPEG_LAYER_III" and kind == "WAV":
        pytest.skip("libsndfile writes none")
    soundfile.write(file, tone(8000, 1.0) / 2, 8000, subtype, format=kind)
    wave = read_wave(file, rate)
    noted = [] if kind in MEASURED else [f"has a format, {kind}, whose files do not show whether they are whole"]
    assert list(wave.remarks) == noted
    assert 8000 <= len(wave.samples) <= 9000  # some codecs have blocks of samples
    np.testing.assert_allclose(wave.samples[200:7800], tone(8000, 1.0)[200:7800] / 2, atol=0.13)
    segment = read_wave(file, rate, selection=Selection(0.05, 0.1))
    first = round(0.05 * rate)
    np.testing.assert_array_equal(segment.samples, wave.samples[first : first + round(0.1 * rate)])


def test_a_sound_too_short_to_resample_raises_a_user_error(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "one.wav", np.zeros(1), 44100)
    with pytest.raises(UserError, match="is shorter than a sample at 8,000"):
        read_wave(tmp_path / "one.wav", 8000)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((5, 2)), "the samples of one channel"),
        (["a"], "expected numbers"),
        (np.array([0.1, np.nan]), "that are not numbers"),
        (np.array([1000, -3], np.int16), "found whole numbers; divide them by 32,768"),
        (np.array([0, 1, -1], np.int16), "found whole numbers; divide them by 32,768"),  # quiet, and not full scale
        (np.array([9830.0, -3.0]), "between -1 and 1, found 9,830; divide them by 32,768"),
    ],
)
def test_invalid_samples_raise_a_user_error(given: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        as_samples(given)


def test_samples_may_be_a_list_empty_or_zero(tmp_path: Path) -> None:
    assert as_samples([0.5, -0.5]).tolist() == [0.5, -0.5]
    assert as_samples([]).shape == (0,)
    assert as_samples([0, 1]).tolist() == as_samples(np.array([0.0, 1.0])).tolist() == [0.0, 1.0]
    assert as_samples(np.zeros(3, np.int16)).tolist() == [0.0] * 3


def test_a_pipe_is_read_like_a_file(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", tone(8000), 8000)
    os.mkfifo(tmp_path / "pipe.wav")
    writer = threading.Thread(target=lambda: (tmp_path / "pipe.wav").write_bytes((tmp_path / "a.wav").read_bytes()))
    writer.start()
    assert read_wave(tmp_path / "pipe.wav", 8000).seconds == 0.25
    writer.join()


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from([(44100, 8000), (8000, 16000), (48000, 16000), (8000, 8000), (11025, 8000)]),
    st.lists(st.integers(0, 5000), max_size=6),
)
def test_sound_is_resampled_to_the_same_samples_in_pieces_as_at_once(rates: tuple[int, int], sizes: list[int]) -> None:
    samples = np.random.default_rng(0).normal(0, 0.1, sum(sizes)).astype(np.float32)
    resampler = Resampler(*rates)
    found = [resampler.more(piece) for piece in np.split(samples, np.cumsum(sizes)[:-1])] if sizes else []
    whole = samples if rates[0] == rates[1] else resample(samples, *rates)
    np.testing.assert_array_equal(np.concatenate([*found, resampler.rest()]), whole)

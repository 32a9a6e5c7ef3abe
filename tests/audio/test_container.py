"""Sounds whose headers are wrong, that are followed by other things, or of which a file holds several."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.audio.wave import read_wave
from ernie.errors import UserError

soundfile = pytest.importorskip("soundfile")
pytest.importorskip("soxr")

LONGER = "is longer than its header says, and was read to the end of its file"
CUT = "is cut off: its file ends too early"
JOINED = "was joined from several that its file holds one after the other"


def speech(seconds: float = 1.75, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    time = np.arange(round(8000 * seconds)) / 8000
    return 0.3 * np.sin(2 * np.pi * (300 + 200 * time) * time) + rng.normal(0, 0.02, len(time))


def written(kind: str, subtype: str | None = None, samples: np.ndarray | None = None, rate: int = 8000) -> bytes:
    buffer = io.BytesIO()
    soundfile.write(buffer, speech() if samples is None else samples, rate, subtype, format=kind)
    return buffer.getvalue()


def heard(data: bytes) -> tuple[np.ndarray, tuple[str, ...]]:
    wave = read_wave(io.BytesIO(data), 8000, "a")
    return wave.samples, wave.remarks


def chunk(name: bytes, content: bytes, order: str = "<") -> bytes:
    return name + struct.pack(f"{order}I", len(content)) + content + bytes(len(content) % 2)


COMMENT = chunk(b"LIST", b"INFOICMT" + struct.pack("<I", 12) + b"hello there\0")


def with_size(data: bytes, size: int, riff: int | None = None) -> bytes:
    """A WAV file with another size of its samples, and of all, in its header."""
    changed, place = bytearray(data), data.index(b"data") + 4
    changed[place : place + 4] = struct.pack("<I", size)
    if riff is not None:
        changed[4:8] = struct.pack("<I", riff)
    return bytes(changed)


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "FLOAT", "PCM_U8", "ULAW", "IMA_ADPCM", "GSM610"])
@pytest.mark.parametrize("size", [0, 1, 1600])
@pytest.mark.parametrize("riff", [None, 0, 8, 36, 36 + 1600])
def test_a_wav_file_whose_recorder_was_killed_is_read_to_its_end(subtype: str, size: int, riff: int | None) -> None:
    data = written("WAV", subtype)
    whole, _ = heard(data)
    samples, remarks = heard(with_size(data, size, riff))
    np.testing.assert_array_equal(samples, whole)
    assert remarks == (LONGER,)


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFFFFF - 36, 0x7FFFF000])
@pytest.mark.parametrize("riff", [None, 0xFFFFFFFF])
def test_sizes_of_programs_that_write_to_a_pipe_are_no_news(size: int, riff: int | None) -> None:
    data = written("WAV")
    samples, remarks = heard(with_size(data, size, riff))
    assert len(samples) == 14_000
    assert remarks == ()


@pytest.mark.parametrize("size", [0, 1600, 0xFFFFFFFF])
def test_tags_after_samples_of_unknown_size_are_not_heard(size: int) -> None:
    samples, _ = heard(with_size(written("WAV") + COMMENT, size))
    np.testing.assert_array_equal(samples, heard(written("WAV"))[0])


@pytest.mark.parametrize(
    "after",
    [
        COMMENT,
        COMMENT[:20],  # itself cut off
        chunk(b"id3 ", b"ID3\3" + bytes(300)) + COMMENT,
        chunk(b"abcd", bytes(range(255))),  # of some program
        b"TAG" + bytes(125),
        b"ID3\4\0\0\0\0\0\x0f" + bytes(15),
        bytes(512),  # padding
        b"\n",
    ],
)
@pytest.mark.parametrize("samples", [14_000, 13_999])  # with PCM_U8 the latter is an odd number of bytes
@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_U8"])
def test_what_follows_the_samples_is_not_read_as_sound(after: bytes, samples: int, subtype: str) -> None:
    data = written("WAV", subtype, speech()[:samples])
    found, remarks = heard(data + after)
    np.testing.assert_array_equal(found, heard(data)[0])
    assert remarks == ()


def patched(data: bytes, kind: str, seconds: float | None) -> bytes:
    """A file whose header says that it has so many seconds of 16-bit samples; None: a size that is unknown."""
    changed, size = bytearray(data), None if seconds is None else round(16_000 * seconds)
    if kind == "AU":
        changed[8:12] = struct.pack(">I", 0xFFFFFFFF if size is None else size)
    elif kind == "AIFF":
        place = data.index(b"SSND") + 4
        changed[place : place + 4] = struct.pack(">I", 0x7FFFFFFF if size is None else size + 8)
        frames = data.index(b"COMM") + 10
        changed[frames : frames + 4] = struct.pack(">I", 0x7FFFFFFF if size is None else size // 2)
    elif kind == "CAF":
        place = data.index(b"data") + 4
        changed[place : place + 8] = struct.pack(">q", -1 if size is None else size + 4)
    elif kind == "RF64":
        place = data.index(b"ds64") + 16
        changed[place : place + 8] = struct.pack("<Q", (1 << 63) if size is None else size)
    else:
        place = data.index(b"data") + 16
        changed[place : place + 8] = struct.pack("<Q", (1 << 63) if size is None else size + 24)
    return bytes(changed)


@pytest.mark.parametrize("kind", ["AU", "AIFF", "CAF", "RF64", "W64"])
@pytest.mark.parametrize("seconds", [0, 0.1, None])
def test_other_containers_are_read_to_their_end_too(kind: str, seconds: float | None) -> None:
    data = written(kind)
    samples, remarks = heard(patched(data, kind, seconds))
    np.testing.assert_array_equal(samples, heard(data)[0])
    assert remarks == (() if seconds is None else (LONGER,))


@pytest.mark.parametrize("kind", ["WAV", "AU", "AIFF", "CAF", "RF64", "W64"])
def test_headers_that_say_more_than_there_is_are_reported(kind: str) -> None:
    data = written(kind)
    samples, remarks = heard(data[:-8000])
    np.testing.assert_array_equal(samples, heard(data)[0][: len(samples)])
    assert len(samples) == 10_000
    assert remarks == (CUT,)


def test_a_flac_header_that_says_too_little_does_not_end_the_sound() -> None:
    data = bytearray(written("FLAC"))
    data[22:26] = struct.pack(">I", 1000)
    samples, remarks = heard(bytes(data))
    np.testing.assert_array_equal(samples, heard(written("FLAC"))[0])
    assert remarks == (LONGER,)


@pytest.mark.parametrize("after", [b"TAG" + b"a" * 125, bytes(9000), b"junk" * 4000], ids=["a tag", "zeros", "junk"])
def test_what_follows_a_flac_file_does_not_end_it_early(after: bytes) -> None:
    data = written("FLAC")
    samples, remarks = heard(data + after)
    np.testing.assert_array_equal(samples, heard(data)[0])
    assert remarks == ()


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("channels", [1, 2])
def test_a_flac_file_that_lost_its_end_is_reported(channels: int, counted: bool) -> None:
    data = bytearray(written("FLAC", None, np.stack([speech()] * channels, 1)))
    if not counted:
        data[22:26] = bytes(4)
    samples, remarks = heard(bytes(data[:-3000]))
    assert 0 < len(samples) < 14_000
    assert "is cut off: its file is damaged or ends too early" in remarks


def test_a_sphere_file_that_lost_its_end_is_reported() -> None:
    data = written("NIST")
    samples, remarks = heard(data[:-8001])
    np.testing.assert_array_equal(samples, heard(data)[0][:9999])
    assert remarks == (CUT,)


def test_sphere_files_that_were_put_together_are_heard_without_their_headers() -> None:
    first, second = written("NIST"), written("NIST", None, speech(1, 1))
    samples, remarks = heard(first + second)
    np.testing.assert_array_equal(samples, np.concatenate([heard(first)[0], heard(second)[0]]))
    assert remarks == (JOINED,)


def test_a_sound_of_another_format_is_refused_with_a_way_to_convert_it() -> None:
    speex = b"OggS\0\2" + bytes(8) + b"\1" + bytes(7) + b"\xaa" * 4 + b"\1\x50Speex   1.2" + bytes(3000)
    for data, reason in (
        (b"\xff\xf1\x50\x80" + bytes(3000), "if it is one, convert it"),
        (speex, "its codec is not known"),
    ):
        with pytest.raises(
            UserError, match=rf"a: cannot be read as sound: .*{reason}.*, such as with: ffmpeg -i a sound"
        ):
            heard(data)


def test_a_compressed_sphere_file_is_named() -> None:
    data = written("NIST").replace(b"sample_coding -s3 pcm", b"sample_coding -s26 pcm,embedded-shorten-v2.00")
    with pytest.raises(UserError, match="it is SPHERE compressed by shorten; unpack it, such as with: sph2pipe"):
        heard(data)


@pytest.mark.parametrize("kind", ["WAV", "FLAC", "AIFF"])
def test_a_tag_before_a_sound_hides_nothing_of_it(kind: str) -> None:
    data = written(kind)
    samples, remarks = heard(b"ID3\x03\0\0\0\0\0\x0a" + bytes(10) + data)
    np.testing.assert_array_equal(samples, heard(data)[0])
    assert remarks == ()


@pytest.mark.parametrize("kind", ["SVX", "AVR", "MAT4", "MAT5", "MPC2K", "WVE", "VOC", "PAF", "IRCAM", "PVF"])
def test_a_rare_format_whose_files_do_not_show_whether_they_are_whole_is_noted(kind: str) -> None:
    data = written(kind)
    for content in (data, data[: len(data) // 2]):
        samples, remarks = heard(content)
        assert len(samples) > 1000
        assert remarks == (f"has a format, {kind}, whose files do not show whether they are whole",)


@pytest.mark.parametrize("kind", ["SVX", "AVR", "MAT4", "MAT5", "MPC2K", "WVE"])
def test_a_rare_format_whose_header_says_too_little_is_read_or_noted(kind: str) -> None:
    data = written(kind)
    (old,) = [count for order in ("big", "little") if (count := (14_000).to_bytes(4, order)) in data]
    samples, remarks = heard(data.replace(old, (1000).to_bytes(4, "big" if old < b"\1" else "little")))
    assert (len(samples) == 14_000) == (kind != "MAT4")
    assert remarks == (f"has a format, {kind}, whose files do not show whether they are whole",)


def test_a_sphere_file_whose_header_says_too_little_is_read_in_full() -> None:
    data = written("NIST")
    samples, remarks = heard(data.replace(b"-i 14000", b"-i 1000 "))
    assert len(samples) == 14_000
    assert remarks == ("is longer than its header says, and was read to the end of its file",)


CHAINS = [("OGG", "VORBIS"), ("OGG", "OPUS"), ("FLAC", None), ("MP3", None), ("WAV", None), ("WAV", "IMA_ADPCM")]
CHAINS += [("AIFF", None), ("AU", None), ("W64", None), ("RF64", None)]


@pytest.mark.parametrize(("kind", "subtype"), CHAINS)
def test_files_that_were_put_together_are_heard_in_full(kind: str, subtype: str | None) -> None:
    parts = [written(kind, subtype, speech(seconds, seed)) for seed, seconds in enumerate((1.75, 0.8, 1.2))]
    expected = np.concatenate([heard(part)[0] for part in parts])
    samples, remarks = heard(b"".join(parts))
    np.testing.assert_allclose(samples, expected, atol=1e-6)
    assert remarks == (JOINED,)


WHOLE = [("OGG", "VORBIS"), ("OGG", "OPUS"), ("WAV", None), ("AIFF", None), ("AU", None), ("W64", None), ("RF64", None)]


@pytest.mark.parametrize(("kind", "subtype"), [*WHOLE, ("CAF", None), ("FLAC", None), ("MP3", None)])
def test_a_sound_after_one_that_was_cut_off_is_heard_too(kind: str, subtype: str | None) -> None:
    first, second = (written(kind, subtype, speech(seconds, seed)) for seed, seconds in enumerate((1.75, 1.2)))
    expected, _ = heard(second)
    samples, remarks = heard(first[: len(first) * 2 // 3 + 1] + second)
    np.testing.assert_allclose(samples[-len(expected) :], expected, atol=1e-6)
    assert JOINED in remarks
    assert len(samples) <= len(expected) + 14_000
    assert "is cut off" in str(remarks) or "has a part that is left out" in str(remarks)


@pytest.mark.parametrize("size", [0, 0x7FFFFFF0, 0xFFFFFFFF])
def test_sounds_of_programs_that_write_to_a_pipe_may_be_put_together(size: int) -> None:
    first, second = (with_size(written("WAV", None, speech(1, seed)), size) for seed in (0, 1))
    samples, remarks = heard(first + second)
    np.testing.assert_array_equal(samples, np.concatenate([heard(first)[0], heard(second)[0]]))
    assert remarks == (JOINED, LONGER)[: 1 if size else 2]


def test_parts_may_have_their_own_rates_and_channels() -> None:
    both = np.stack([speech(0.5, 1)] * 2, 1)
    samples, remarks = heard(written("OGG") + written("OGG", None, both, 16_000) + written("WAV"))
    assert len(samples) == 14_000 + 2_000 + 14_000
    assert remarks[0] == JOINED
    assert {"was mixed from 2 channels", "was resampled from 16,000 to 8,000 samples a second"} <= {*remarks}
    assert remarks.count(JOINED) == 1


@pytest.mark.parametrize("second", ["WAV", "FLAC", "OGG", "NIST"])
@pytest.mark.parametrize("first", ["WAV", "FLAC", "OGG", "MP3", "AU"])
def test_files_of_two_formats_may_be_put_together(first: str, second: str) -> None:
    samples, remarks = heard(written(first) + written(second))
    np.testing.assert_allclose(samples[-14_000:], heard(written(second))[0], atol=1e-6)
    assert (len(samples), remarks) == (28_000, (JOINED,))


def test_a_second_part_that_cannot_be_read_is_reported() -> None:
    samples, remarks = heard(written("WAV") + b"RIFF" + struct.pack("<I", 5000) + b"WAVE" + b"nonsense" * 600)
    assert len(samples) == 14_000
    assert "has a part that is left out, as it cannot be read as sound" in remarks


@pytest.mark.parametrize("kind", ["WAV", "AIFF", "CAF", "W64", "OGG", "FLAC", "AU", "RF64", "MP3"])
@settings(max_examples=40, deadline=None)
@given(st.data())
def test_damage_to_a_header_is_an_error_of_one_sentence_or_heard_as_well_as_it_can_be(kind: str, data) -> None:
    good = bytearray(written(kind, None, speech(0.2)))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, min(120, len(good) - 1)))] = data.draw(st.integers(0, 255))
    good = good[: data.draw(st.integers(0, len(good)))]
    try:
        wave = read_wave(io.BytesIO(bytes(good)), 8000, "a")
    except UserError as error:
        assert str(error).startswith("a: ")
        assert "\n" not in str(error)
    else:
        assert len(wave.samples)


def test_a_header_of_countless_chunks_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read as sound"):
        heard(b"RIFF\xff\xff\xff\xffWAVE" + b"abcd\0\0\0\0" * 300_000)

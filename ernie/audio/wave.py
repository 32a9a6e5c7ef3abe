"""Read waveforms from files: one channel, at the requested rate.

Legend: S samples of sound, C channels.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ernie.errors import UserError, about

_MIN_RATE, _MAX_RATE = 1_000, 1_000_000  # samples a second
_SILENT = 1e-4  # the maximum amplitude of a silent recording: one step of 16 bits is 3e-5
_FULL = 1 << 15  # the value of 1.0 in 16-bit samples
_MAX_BYTES = 4  # in an integer sample: NumPy makes wider ones of a list
_TOO_LOUD = 8.0  # no recording exceeds 1 by so much: these samples have another scale
_CLIPPED, _RUN = 0.999, 4  # a recording with a run of full-scale samples of this length is clipped
_CLIPPED_IN = {"PCM_S8": 0.992, "PCM_U8": 0.992, "ALAW": 0.984, "ULAW": 0.980}  # formats with a lower full scale
# The libsndfile log of a WAV, AIFF, AU, RF64 or W64 file whose size differs from the one in its header; the last two
# have 64-bit sizes.
_BYTES = re.compile(
    r"^ *(?:data|SSND|Data Size|(?P<wide>Riff size|riff)) *: (?P<named>\d+) \(should be (?P<there>\d+)\)", re.MULTILINE
)
# The log of a truncated OGG file has the first, or both others.  The last alone also occurs in files short enough for
# one page, and the second alone with a tag after the end.
_NO_END = "Last page lacks an end-of-stream bit"
_BROKEN_OFF = "Junk after the last page", "File ended unexpectedly"
_UNKNOWN = 0x7FFF0000  # bytes: programs that write to a pipe put this size or more, not knowing the real one
_UNKNOWN_WIDE = 1 << 62
_UNKNOWN_FRAMES = (1 << 63) - 1  # reported by libsndfile for a FLAC file that was written to a pipe
_BLOCK = 4096  # samples read at a time: the maximum loss before a damaged position
# The first bytes of sound files: WAV in three forms, W64, FLAC, OGG, MP3 with a tag, AIFF, AU and CAF.
_SOUND_FILES = (b"RIFF", b"RIFX", b"RF64", b"riff", b"fLaC", b"OggS", b"ID3", b"FORM", b".snd", b"caff")


@dataclass(frozen=True, eq=False)
class Wave:
    """Sound of one channel: samples (S,) between -1 and 1, `rate` a second.

    `remarks` describe what was changed or is odd, in words that follow "the sound".
    """

    samples: np.ndarray
    rate: int
    remarks: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """The duration."""
        return len(self.samples) / self.rate


def check_rate(rate: int, name: str = "rate") -> None:
    """Raise UserError for a sampling rate that no sound has; `name` is that of the setting."""
    if not _MIN_RATE <= rate <= _MAX_RATE:
        raise UserError(f"{name}: expected {_MIN_RATE:,} to {_MAX_RATE:,} samples a second, found {rate:,}")


def require_file(file: str | os.PathLike[str]) -> None:
    """Raise UserError for a file that is missing, and for what is no file name."""
    if not os.path.exists(file):  # noqa: PTH110 - never raises
        raise UserError(f"{file}: there is no such file")
    if os.path.isdir(file):  # noqa: PTH112 - as above
        raise UserError(f"{file}: is a folder; give its files, such as {Path(file) / '*.wav'}")


def read_wave(file: str | os.PathLike[str] | BinaryIO, rate: int, name: str = "") -> Wave:
    """Read a sound file (WAV, FLAC, OGG and whatever else libsndfile reads) at `rate` samples a second.

    Messages call it `name`, by default its path.  Several channels are mixed, another rate is resampled; the remarks
    mention both, as well as clipping, silence, and a damaged or truncated file, of which the readable beginning is
    returned.  Raises UserError for a file that is missing, is no sound, or holds no samples.
    """
    soundfile, name = require("soundfile"), name or str(file)
    if isinstance(file, (str, os.PathLike)):
        require_file(file)
    try:
        with soundfile.SoundFile(file) as sound:
            converter = _Converter(sound.samplerate, rate, _CLIPPED_IN.get(sound.subtype, _CLIPPED))
            for block_SC in _blocks(sound, converter.remarks):
                with about(name):
                    converter.add(block_SC)
    except UserError:
        raise
    except (OSError, soundfile.SoundFileError, TypeError, ValueError) as error:  # TypeError: from a .raw file
        reason = getattr(error, "error_string", "") or getattr(error, "strerror", "") or str(error)
        raise UserError(f"{name}: cannot be read as sound: {reason.rstrip('.')}") from None
    with about(name):
        return converter.wave()


def is_sound_file(first_bytes: bytes) -> bool:
    """Return whether these bytes, at least the first four, begin a sound file rather than bare samples."""
    return first_bytes.startswith(_SOUND_FILES)


def _blocks(sound: Any, remarks: list[str]) -> Iterator[np.ndarray]:
    """Yield all samples (S, C) of an open file, whatever count its header has; add a remark if some are lost."""
    # After each block soundfile would seek to its current position, which fails at the end of a FLAC file of unknown
    # length.
    sound.seekable = lambda: False
    count, last = 0, _BLOCK
    while last == _BLOCK:
        try:
            block_SC = sound.read(_BLOCK, "float32", always_2d=True)
        except require("soundfile").SoundFileError:  # from a FLAC file
            if not count:
                raise
            remarks.append("is cut off: its file is damaged or ends too early")
            return
        last = len(block_SC)
        count += last
        yield block_SC
    if _is_cut(sound, count):
        remarks.append("is cut off: its file ends too early")


def _is_cut(sound: Any, samples: int) -> bool:
    """Return whether a file has fewer samples than its header says, as after an interrupted download."""
    log = sound.extra_info
    if samples < sound.frames < _UNKNOWN_FRAMES or _NO_END in log or all(message in log for message in _BROKEN_OFF):
        return True
    match = _BYTES.search(log)
    unknown = _UNKNOWN_WIDE if match and match["wide"] else _UNKNOWN
    return bool(match and int(match["there"]) < int(match["named"]) < unknown)


def as_wave(cell: Mapping[str, Any], rate: int, name: str) -> Wave:
    """Convert the cell {array: (S,), sampling_rate: ...} of a row to a wave; raises as `read_wave` does."""
    found_rate = cell.get("sampling_rate")
    if isinstance(found_rate, np.integer) or (isinstance(found_rate, float) and found_rate.is_integer()):
        found_rate = int(found_rate)
    if not isinstance(found_rate, int) or isinstance(found_rate, bool) or found_rate < 1:
        raise UserError(f"{name}: expected the name of a file, or 'array' and 'sampling_rate', found {cell!r:.60}")
    with about(f"{name}: array"):
        samples = as_samples(cell.get("array"))
    converter = _Converter(found_rate, rate)
    with about(name):
        converter.add(samples[:, None])
        return converter.wave()


def as_samples(given: Any) -> np.ndarray:
    """Convert to float32 samples (S,) of one channel, between -1 and 1.

    Raises UserError for anything else: several channels, integers, NaN or infinity.
    """
    try:
        samples = np.asarray(given)
    except (TypeError, ValueError):
        samples = np.zeros((0, 0))
    if samples.ndim != 1 or not (samples.dtype.kind in "fiu" or not len(samples)):
        raise UserError("expected numbers, the samples of one channel")
    # An integer 1 of quiet 16-bit sound must not be read as full scale, but a Python list may hold 0 and 1.
    limit = 0 if samples.dtype.itemsize <= _MAX_BYTES else 1
    if samples.dtype.kind in "iu" and np.abs(samples.astype(np.float64)).max(initial=0) > limit:
        raise UserError(
            f"expected samples between -1 and 1, found whole numbers; divide them by {_FULL:,}, if of 16 bits"
        )
    with np.errstate(over="ignore"):  # reported below
        samples = samples.astype(np.float32)
    _check_numbers(samples)
    return samples


def _check_numbers(samples: np.ndarray) -> None:
    if not np.isfinite(samples).all():
        raise UserError("holds samples that are not numbers")
    loudest = float(np.abs(samples).max(initial=0))
    if loudest > _TOO_LOUD:
        raise UserError(
            f"expected samples between -1 and 1, found {loudest:,.0f}; divide them by {_FULL:,}, if they were whole "
            "numbers of 16 bits"
        )


class _Converter:
    """Mixes and resamples sound that comes in blocks: of a long one only the result is held in memory."""

    def __init__(self, found_rate: int, rate: int, full_scale: float = _CLIPPED):
        self.remarks: list[str] = []  # those that come first
        self._rates, self._full_scale = (found_rate, rate), full_scale
        self._resampler = Resampler(found_rate, rate)
        self._channels: list[Loudness] = []
        self._loudest, self._samples = 0.0, 0
        self._parts: list[np.ndarray] = []

    def add(self, block_SC: np.ndarray) -> None:
        """Take more samples (S, C).  Raises UserError if they are not between -1 and 1."""
        _check_numbers(block_SC)
        self._channels = self._channels or [Loudness(self._full_scale) for _ in range(block_SC.shape[1])]
        for loudness, channel in zip(self._channels, block_SC.T, strict=True):
            loudness.add(channel)
        mixed = block_SC[:, 0] if block_SC.shape[1] == 1 else block_SC.mean(1)
        self._loudest = max(self._loudest, float(np.abs(mixed).max(initial=0.0)))
        self._samples += len(mixed)
        self._parts.append(self._resampler.more(mixed))

    def wave(self) -> Wave:
        """Return the sound, which is over.  Raises UserError if it holds no samples."""
        if not self._samples:
            raise UserError("holds no samples")
        remarks = list(self.remarks)
        if len(self._channels) > 1:
            remarks.append(f"was mixed from {len(self._channels)} channels")
        # A channel may be clipped although the mix is not.
        remarks += _oddities(self._loudest, any(channel.clipped for channel in self._channels))
        found_rate, rate = self._rates
        if found_rate != rate:
            remarks.append(f"was resampled from {found_rate:,} to {rate:,} samples a second")
        samples = np.ascontiguousarray(np.concatenate([*self._parts, self._resampler.rest()]), np.float32)
        if not len(samples):
            raise UserError(f"is shorter than a sample at {rate:,} a second")
        return Wave(samples, rate, tuple(remarks))


def _oddities(loudest: float, clipped: bool) -> list[str]:
    """Return remarks on the loudness of a sound."""
    return ["is silent"] if loudest < _SILENT else ["is clipped"] if clipped else []


class Loudness:
    """Collects remarks on a streamed sound, complete once it is over."""

    def __init__(self, full_scale: float = _CLIPPED) -> None:
        self.clipped, self._full_scale = False, full_scale
        self._loudest = 0.0
        self._tail = np.zeros(0, np.float32)

    def add(self, samples: np.ndarray) -> None:
        """Take more samples (S,)."""
        joined = np.concatenate([self._tail, samples])
        loudest = float(np.abs(joined).max(initial=0.0))
        self._loudest = max(self._loudest, loudest)
        if loudest >= self._full_scale:
            self.clipped = self.clipped or is_clipped(joined, self._full_scale)
        self._tail = joined[-(_RUN - 1) :]

    @property
    def remarks(self) -> list[str]:
        """The remarks, in words that follow "the sound"."""
        return _oddities(self._loudest, self.clipped)


class Resampler:
    """Resamples sound that comes in pieces to another rate; the result is that of the whole sound, to the bit."""

    def __init__(self, rate: int, wanted: int):
        self._stream = None if rate == wanted else require("soxr").ResampleStream(rate, wanted, 1, "float32")

    def more(self, samples: np.ndarray) -> np.ndarray:
        """Take more samples (S,); return those that are known by now."""
        return samples if self._stream is None else self._stream.resample_chunk(np.ascontiguousarray(samples))

    def rest(self) -> np.ndarray:
        """End the sound; return the rest of its samples."""
        nothing = np.zeros(0, np.float32)
        return nothing if self._stream is None else self._stream.resample_chunk(nothing, last=True)


def resample(samples: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """Resample samples (S,) to another rate."""
    return require("soxr").resample(samples, rate, wanted).astype(np.float32)


def is_clipped(samples: np.ndarray, full_scale: float = _CLIPPED) -> bool:
    """Return whether there is a run of samples at full scale."""
    loud = np.concatenate(([0], (np.abs(samples) >= full_scale).astype(np.int8), [0]))
    begins, ends = np.flatnonzero(np.diff(loud) == 1), np.flatnonzero(np.diff(loud) == -1)
    return bool((ends - begins >= _RUN).any())


def pieces(wave: Wave, seconds: float) -> Iterator[np.ndarray]:
    """Yield the samples in pieces of `seconds`, as from a microphone."""
    size = max(1, round(seconds * wave.rate))
    for first in range(0, len(wave.samples), size):
        yield wave.samples[first : first + size]


def require(name: str) -> Any:
    """Import a package that only sound needs.  Raises UserError if it is not installed."""
    try:
        return __import__(name)
    except (ImportError, OSError) as error:  # OSError: libsndfile is missing
        raise UserError(
            f"sound needs the package {name} ({error}): install the extra, pip install 'ernie-continual[speech]'"
        ) from None

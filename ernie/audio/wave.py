"""Waveforms from files: one channel, at the rate that is wanted.

Legend: S samples of sound, C channels.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from ernie.errors import UserError, about

_SILENT = 1e-4  # the loudest sample of a recording in which there is nothing to hear: one of 16 bits is 3e-5
_FULL = 1 << 15  # what stands for 1 in samples of 16 bits
_WIDEST = 4  # bytes of a sample that is a whole number: NumPy makes wider ones of a list
_TOO_LOUD = 8.0  # no recording goes so far over 1: these are samples of another scale
_CLIPPED, _RUN = 0.999, 4  # so many samples in a row at full scale were cut off
_CLIPPED_IN = {"PCM_S8": 0.992, "PCM_U8": 0.992, "ALAW": 0.984, "ULAW": 0.980}  # whose greatest samples are less
# What libsndfile has to say of a WAV, AIFF, AU, RF64 or W64 file that holds another number of bytes than its header
# names, the last two with 64 bits.
_BYTES = re.compile(
    r"^ *(?:data|SSND|Data Size|(?P<wide>Riff size|riff)) *: (?P<named>\d+) \(should be (?P<there>\d+)\)", re.MULTILINE
)
# Of an OGG file without an end it says the first, or both others.  The last alone it says of any that is short enough
# for one page, and the second of a title behind the end.
_NO_END = "Last page lacks an end-of-stream bit"
_BROKEN_OFF = "Junk after the last page", "File ended unexpectedly"
_UNKNOWN = 0x7FFF0000  # bytes: who writes to a pipe names so many or more, not knowing how many there will be
_UNKNOWN_WIDE = 1 << 62
_ENDLESS = (1 << 63) - 1  # samples, says libsndfile, where a FLAC file that was written to a pipe does not say how many
_BLOCK = 4096  # samples that are read at a time: so many at most are lost before a place that cannot be read
# How sound files begin: WAV in three forms, W64, FLAC, OGG, MP3 with its title, AIFF, AU and CAF.
_SOUND_FILES = (b"RIFF", b"RIFX", b"RF64", b"riff", b"fLaC", b"OggS", b"ID3", b"FORM", b".snd", b"caff")


@dataclass(frozen=True, eq=False)
class Wave:
    """Sound of one channel: samples (S,) between -1 and 1, so many a second.

    `remarks` are what was changed or is odd about it, in words that follow "the sound".
    """

    samples: np.ndarray
    rate: int
    remarks: tuple[str, ...] = ()

    @property
    def seconds(self) -> float:
        """How long it is."""
        return len(self.samples) / self.rate


def read_wave(file: str | os.PathLike[str] | BinaryIO, rate: int, name: str = "") -> Wave:
    """Read a sound file (WAV, FLAC, OGG and whatever else libsndfile reads) at `rate` samples a second.

    Messages call it `name`, by default its path.  Several channels are mixed, another rate is resampled; both are
    remarked, and so are clipping, silence, and that a file is damaged or ends too early, of which what comes before is
    read.  Raises UserError for a file that is missing, is no sound, or holds no samples.
    """
    soundfile, name = require("soundfile"), name or str(file)
    if isinstance(file, (str, os.PathLike)) and not os.path.exists(file):  # noqa: PTH110 - never raises
        raise UserError(f"{file}: there is no such file")
    try:
        with soundfile.SoundFile(file) as sound:
            (samples_SC, remarks), found = _read(sound), sound.samplerate
            full = _CLIPPED_IN.get(sound.subtype, _CLIPPED)
    except (OSError, soundfile.SoundFileError, TypeError, ValueError) as error:  # TypeError: of a .raw file
        reason = getattr(error, "error_string", "") or getattr(error, "strerror", "") or str(error)
        raise UserError(f"{name}: cannot be read as sound: {reason.rstrip('.')}") from None
    with about(name):
        _check_numbers(samples_SC)
    return _wave(samples_SC, found, rate, name, remarks, full)


def is_sound_file(first_bytes: bytes) -> bool:
    """Whether bytes, of which the first four are enough, begin as a sound file does and not as samples alone."""
    return first_bytes.startswith(_SOUND_FILES)


def _read(sound: Any) -> tuple[np.ndarray, list[str]]:
    """All samples (S, C) of an open file, however many it says it has, and whether some are missing, as a remark."""
    # Behind each block soundfile would seek to where it is: that fails at the end of a FLAC file of unknown length.
    sound.seekable = lambda: False
    blocks_SC: list[np.ndarray] = []
    try:
        while not blocks_SC or len(blocks_SC[-1]) == _BLOCK:
            blocks_SC.append(sound.read(_BLOCK, "float32", always_2d=True))
    except require("soundfile").SoundFileError:  # of a FLAC file
        if not blocks_SC:
            raise
        return np.concatenate(blocks_SC), ["is cut off: its file is damaged or ends too early"]
    samples_SC = np.concatenate(blocks_SC)
    return samples_SC, ["is cut off: its file ends too early"] if _is_cut(sound, len(samples_SC)) else []


def _is_cut(sound: Any, read: int) -> bool:
    """Whether a file has fewer samples than its header says, as after a download that was broken off."""
    said = sound.extra_info
    if read < sound.frames < _ENDLESS or _NO_END in said or all(words in said for words in _BROKEN_OFF):
        return True
    told = _BYTES.search(said)
    unknown = _UNKNOWN_WIDE if told and told["wide"] else _UNKNOWN
    return bool(told and int(told["there"]) < int(told["named"]) < unknown)


def as_wave(cell: Mapping[str, Any], rate: int, name: str) -> Wave:
    """Sound as a row may have it, {array: (S,), sampling_rate: ...}; raises as `read_wave`."""
    found = cell.get("sampling_rate")
    if isinstance(found, np.integer):
        found = int(found)
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise UserError(f"{name}: expected the name of a file, or 'array' and 'sampling_rate', found {cell!r:.60}")
    with about(f"{name}: array"):
        samples = as_samples(cell.get("array"))
    return _wave(samples[:, None], found, rate, name)


def as_samples(given: Any) -> np.ndarray:
    """Samples (S,) of one channel, between -1 and 1, as the library computes with them.

    Raises UserError for anything else: several channels, whole numbers, what is not a number.
    """
    try:
        samples = np.asarray(given)
    except (TypeError, ValueError):
        samples = np.zeros((0, 0))
    if samples.ndim != 1 or not (samples.dtype.kind in "fiu" or not len(samples)):
        raise UserError("expected numbers, the samples of one channel")
    # A quiet moment of 16 bits has no sample above one, which would be as loud as can be; a list may have 0 and 1.
    most = 0 if samples.dtype.itemsize <= _WIDEST else 1
    if samples.dtype.kind in "iu" and np.abs(samples.astype(np.float64)).max(initial=0) > most:
        raise UserError(
            f"expected samples between -1 and 1, found whole numbers; divide them by {_FULL:,}, if of 16 bits"
        )
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


def _wave(
    samples_SC: np.ndarray, found: int, rate: int, name: str, said: Sequence[str] = (), full: float = _CLIPPED
) -> Wave:
    if not len(samples_SC):
        raise UserError(f"{name}: holds no samples")
    remarks = list(said)
    samples = samples_SC[:, 0]
    if samples_SC.shape[1] > 1:
        samples = samples_SC.mean(1)
        remarks.append(f"was mixed from {samples_SC.shape[1]} channels")
    # A channel may be cut off at full scale, and what it is mixed to is not.
    clipped = np.abs(samples_SC).max() >= full and any(is_clipped(channel, full) for channel in samples_SC.T)
    remarks += _oddities(float(np.abs(samples).max()), clipped)
    if found != rate:
        samples = resample(samples, found, rate)
        remarks.append(f"was resampled from {found:,} to {rate:,} samples a second")
        if not len(samples):
            raise UserError(f"{name}: is shorter than a sample at {rate:,} a second")
    return Wave(np.ascontiguousarray(samples, np.float32), rate, tuple(remarks))


def _oddities(loudest: float, clipped: bool) -> list[str]:
    """What is odd about the loudness of a sound."""
    return ["is silent"] if loudest < _SILENT else ["is clipped"] if clipped else []


class Loudness:
    """What can be said of a sound that comes in pieces, once it is over."""

    def __init__(self) -> None:
        self._loudest, self._clipped = 0.0, False
        self._last = np.zeros(0, np.float32)

    def hear(self, samples: np.ndarray) -> None:
        """More samples (S,) of it."""
        joined = np.concatenate([self._last, samples])
        self._loudest = max(self._loudest, float(np.abs(samples).max(initial=0.0)))
        self._clipped = self._clipped or is_clipped(joined)
        self._last = joined[-(_RUN - 1) :]

    @property
    def remarks(self) -> list[str]:
        """What is odd about it, in words that follow "the sound"."""
        return _oddities(self._loudest, self._clipped)


def resample(samples: np.ndarray, rate: int, wanted: int) -> np.ndarray:
    """Samples (S,) at another rate."""
    return require("soxr").resample(samples, rate, wanted).astype(np.float32)


def is_clipped(samples: np.ndarray, full: float = _CLIPPED) -> bool:
    """Whether some samples in a row stand at full scale."""
    loud = np.concatenate(([0], (np.abs(samples) >= full).astype(np.int8), [0]))
    begins, ends = np.flatnonzero(np.diff(loud) == 1), np.flatnonzero(np.diff(loud) == -1)
    return bool((ends - begins >= _RUN).any())


def pieces(wave: Wave, seconds: float) -> Iterator[np.ndarray]:
    """The samples in pieces of some seconds, as a microphone gives them."""
    size = max(1, round(seconds * wave.rate))
    for first in range(0, len(wave.samples), size):
        yield wave.samples[first : first + size]


def require(name: str) -> Any:
    """A package that only sound needs.  Raises UserError where it is not installed."""
    try:
        return __import__(name)
    except (ImportError, OSError) as error:  # OSError: libsndfile is missing
        raise UserError(
            f"sound needs the package {name} ({error}): install the extra, pip install 'ernie-continual[speech]'"
        ) from None

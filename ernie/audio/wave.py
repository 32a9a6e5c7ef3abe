"""Read waveforms from files: one channel, at the requested rate.

Legend: S samples of sound, C channels.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO

import numpy as np

from ernie.audio.container import SOUND_FILES, Part, PartFile, parts
from ernie.audio.convert import FULL_SCALE, Converter, check_numbers, require
from ernie.audio.files import require_file, why_unreadable
from ernie.errors import UserError, about

_MAX_BYTES = 4  # in an integer sample: NumPy makes wider ones of a list
_CLIPPED_IN = {"PCM_S8": 0.992, "PCM_U8": 0.992, "ALAW": 0.984, "ULAW": 0.980}  # formats with a lower full scale
_UNKNOWN_FRAMES = (1 << 63) - 1  # reported by libsndfile for a FLAC file whose header names no length
# Formats whose files show whether they are whole (see container.py), as libsndfile names them.
_MEASURED = frozenset("WAV WAVEX RF64 W64 FLAC OGG MP3 AIFF AU CAF NIST".split())
_BLOCK = 4096  # samples read at a time: the maximum loss before a damaged position
_MOST_FLAC = 1 << 17  # samples that a decoder of FLAC may have read ahead when it fails: a few blocks of 65,535
_MOST_SAMPLES = 1 << 28  # held at once, a gigabyte: 9 hours at 8,000 a second
_MOST_PIPED = 1 << 31  # bytes of a pipe, which are stored until they have been read
_GOES_ON = "goes on after the duration that its row says, and was read up to there"
_MISSING = 0.1  # seconds by which the end of a segment may lie after that of its sound: durations are rounded


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


@dataclass(frozen=True)
class Selection:
    """What is read of a file: `duration` seconds from `offset` on, None for all, of a `channel`.

    That is `mix`, the mean of all channels, or a number, counted from 1.  Unless `more_expected`, sound after the
    duration is remarked on.
    """

    offset: float = 0.0
    duration: float | None = None
    channel: str = "mix"
    more_expected: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.offset < math.inf:
            raise UserError(f"offset: expected seconds from 0 on, found {self.offset:g}")
        if self.duration is not None and not 0 < self.duration < math.inf:
            raise UserError(f"duration: expected more than 0 seconds, found {self.duration:g}")

    @property
    def is_whole(self) -> bool:
        """Whether the sound is read from its beginning to its end."""
        return not self.offset and self.duration is None

    def too_long(self, seconds: float) -> UserError:
        """Return the error for a sound of so many seconds, which are too few."""
        until = " lies" if self.duration is None else f" and duration {self.duration:g} s lie"
        return UserError(
            f"has {seconds:.3f} s, and offset {self.offset:g} s{until} beyond its end; if the columns of these names "
            "say something else, name others, or none, in task.offset and task.duration"
        )


def read_wave(
    file: str | os.PathLike[str] | BinaryIO, rate: int, name: str = "", selection: Selection | None = None
) -> Wave:
    """Read a sound file (WAV, FLAC, OGG and whatever else libsndfile reads) at `rate` samples a second.

    Messages call it `name`, by default its path.  Several channels are mixed, another rate is resampled; the remarks
    mention both, as well as clipping, silence, and a damaged or truncated file, of which the readable beginning is
    returned.  Raises UserError for a file that is missing, is no sound, holds no samples, or has more than fit into a
    gigabyte.
    """
    reader = WaveReader(file, rate, name, selection)
    found, count = [], 0
    for samples in reader:
        found.append(samples)
        count += len(samples)
        if count > _MOST_SAMPLES:
            hours = _MOST_SAMPLES / rate / 3600
            raise UserError(f"{reader.name}: is longer than {hours:.1f} hours, the most that is read at once; cut it")
    return Wave(np.concatenate(found), rate, reader.remarks)


class WaveReader:
    """Reads a sound file block by block: iterating yields samples (S,), as `read_wave` returns them all.

    `remarks` are complete at the end.  Raises UserError, while it reads, as `read_wave` does.
    """

    def __init__(
        self,
        file: str | os.PathLike[str] | BinaryIO,
        rate: int,
        name: str = "",
        selection: Selection | None = None,
    ):
        self.name = name or str(file)
        self.remarks: tuple[str, ...] = ()
        self._file, self._rate, self._selection = file, rate, selection or Selection()

    def __iter__(self) -> Iterator[np.ndarray]:
        if isinstance(self._file, (str, os.PathLike)):
            require_file(self._file)
        remarks: list[str] = []
        samples = 0
        soundfile = require("soundfile")
        try:
            with about(self.name), _seekable(self._file) as source:
                for block in _joined(source, self._rate, self._selection, remarks):
                    samples += len(block)
                    yield block
        except UserError:
            raise
        except (OSError, soundfile.SoundFileError, TypeError, ValueError) as error:
            raise UserError(f"{self.name}: {why_unreadable(error, self._file, self.name)}") from None
        if not samples:
            raise UserError(f"{self.name}: is shorter than a sample at {self._rate:,} a second")
        self.remarks = tuple(dict.fromkeys(remarks))


def is_sound_file(first_bytes: bytes) -> bool:
    """Return whether these bytes, at least the first four, begin a sound file rather than bare samples."""
    return first_bytes.startswith(SOUND_FILES)


@dataclass(frozen=True)
class _Source:
    """An open file that can seek, and its path if it has one."""

    file: BinaryIO
    path: str | os.PathLike[str] | None = None

    @contextmanager
    def opened(self, part: Part) -> Iterator[Any]:
        """Open a part of the file as `soundfile` does.

        A file without flaws is opened by its path, since a few formats have no other mark than its ending.
        """
        is_whole = not part.patches and part.begin == 0 and part.end == self.file.seek(0, os.SEEK_END)
        source = self.path if is_whole and self.path is not None else PartFile(self.file, part)
        with require("soundfile").SoundFile(source) as sound:
            yield sound


@contextmanager
def _seekable(file: str | os.PathLike[str] | BinaryIO) -> Iterator[_Source]:
    """Open a file, or take an open one; of a pipe all is stored, in a temporary file, since sizes are at both ends."""
    with ExitStack() as stack:
        path = file if isinstance(file, (str, os.PathLike)) else None
        opened: Any = file if path is None else stack.enter_context(Path(path).open("rb"))
        if opened.seekable():
            yield _Source(opened, path)
            return
        stored = stack.enter_context(TemporaryFile())
        while block := opened.read(1 << 20):
            stored.write(block)
            if stored.tell() > _MOST_PIPED:
                raise UserError(f"is a pipe of more than {_MOST_PIPED >> 30} gigabytes; write them into a file")
        yield _Source(stored)


def _joined(source: _Source, rate: int, selection: Selection, remarks: list[str]) -> Iterator[np.ndarray]:
    """Yield the samples of all sounds in a file, one after the other; what is odd about them becomes remarks."""
    sounds, left, total = parts(source.file), selection, 0.0
    if len(sounds) > 1:
        remarks.append("was joined from several that its file holds one after the other")
    fault: Exception | None = None  # the first one
    heard = 0
    for part in sounds:
        sound = _Sound(source, part, rate, left)
        try:
            yield from sound
        except (UserError, require("soundfile").SoundFileError) as error:
            fault = fault or error
            remarks.append("has a part that is left out, as it cannot be read as sound")
            continue
        heard += 1
        remarks += sound.remarks
        total += sound.seconds
        if selection.is_whole:
            continue
        ended = None if left.duration is None else left.duration - max(0.0, sound.seconds - left.offset)
        if ended is not None and ended < 1e-4:
            return
        left = replace(left, offset=max(0.0, left.offset - sound.seconds), duration=ended)
    if fault is not None and not heard:
        raise fault
    missing = 0.0 if left.duration is None else left.duration
    if not selection.is_whole and (total <= selection.offset or missing > _MISSING):
        raise selection.too_long(total)


class _Sound:
    """One sound in a file: iterating yields the samples that are selected."""

    def __init__(self, source: _Source, part: Part, rate: int, selection: Selection):
        self._source, self._part, self._rate, self._selection = source, part, rate, selection
        self._frames, self._count = 0, 0  # read or skipped, and read
        self.remarks: list[str] = []
        self.seconds = 0.0  # of all that was read or skipped, or of the whole if the selection lies beyond its end

    def __iter__(self) -> Iterator[np.ndarray]:
        part = self._part
        if not self._selection.is_whole and part.frames:
            part = replace(part, patches=())  # FLAC without a length cannot seek
        with self._source.opened(part) as sound:
            converter = Converter(
                sound.samplerate, self._rate, self._selection.channel, _CLIPPED_IN.get(sound.subtype, 0.999)
            )
            for block_SC in self._blocks(sound):
                yield converter.add(block_SC)
            if not self._frames:
                raise UserError("holds no samples")
            yield converter.rest()
        if self._count:
            self.remarks += converter.remarks

    def _blocks(self, sound: Any) -> Iterator[np.ndarray]:
        """Yield the selected samples (S, C) of an open file, whatever count its header has."""
        first = round(self._selection.offset * sound.samplerate)
        duration = self._selection.duration
        wanted = None if duration is None else max(1, round(duration * sound.samplerate))
        skipped = self._skip(sound, first)
        # After each block soundfile would seek to its current position, which fails at the end of a FLAC file of
        # unknown length.
        sound.seekable = lambda: False
        count, last = 0, _BLOCK
        while last == _BLOCK and skipped == first and (wanted is None or count < wanted):
            size = _BLOCK if wanted is None else min(_BLOCK, wanted - count)
            try:
                block_SC = sound.read(size, "float32", always_2d=True)
            except require("soundfile").SoundFileError:  # from a FLAC file
                rest_SC = self._counted_rest(skipped + count, sound.channels)
                count += len(rest_SC)
                if not skipped + count:
                    raise
                if skipped + count != self._part.frames:
                    self.remarks.append("is cut off: its file is damaged or ends too early")
                yield rest_SC
                break
            last = len(block_SC) if len(block_SC) < size else _BLOCK
            count += len(block_SC)
            yield block_SC
        self._frames, self._count = skipped + count, count
        self.seconds = self._frames / sound.samplerate
        if wanted is None or count < wanted:
            self._remark_on_length(sound)
        elif not self._selection.more_expected and self._frames + _MISSING * sound.samplerate < sound.frames:
            self.remarks.append(_GOES_ON)

    def _skip(self, sound: Any, frames: int) -> int:
        """Skip samples; return how many there were."""
        if not frames:
            return 0
        if sound.frames < _UNKNOWN_FRAMES:
            try:
                return int(sound.seek(min(frames, sound.frames)))
            except require("soundfile").SoundFileError:  # some codecs can only be read
                pass
        sound.seekable = lambda: False
        done, last = 0, _BLOCK
        while done < frames and last:
            last = len(sound.read(min(_BLOCK, frames - done), "float32", always_2d=True))
            done += last
        return done

    def _counted_rest(self, done: int, channels: int) -> np.ndarray:
        """Return the last samples (S, C) that the header of a FLAC file counts; none if they cannot be read.

        A decoder that is told no count takes what follows the sound, such as a tag, for a damaged part of it.
        """
        left = self._part.frames - done
        if 0 < left <= _MOST_FLAC:
            try:
                with self._source.opened(replace(self._part, patches=())) as sound:
                    sound.seek(done)
                    rest: np.ndarray = sound.read(left, "float32", always_2d=True)
                    return rest
            except require("soundfile").SoundFileError:
                pass
        return np.zeros((0, channels), np.float32)

    def _remark_on_length(self, sound: Any) -> None:
        named = self._part.frames or (sound.frames if sound.frames < _UNKNOWN_FRAMES else 0)
        if self._part.is_longer or self._frames > named > 0:
            self.remarks.append("is longer than its header says, and was read to the end of its file")
        elif (self._part.is_cut or self._frames < named) and not self.remarks:
            self.remarks.append("is cut off: its file ends too early")
        elif sound.format not in _MEASURED:
            self.remarks.append(f"has a format, {sound.format}, whose files do not show whether they are whole")


def as_wave(cell: Mapping[str, Any], rate: int, name: str, selection: Selection | None = None) -> Wave:
    """Convert the cell {array: (S,), sampling_rate: ...} of a row to a wave; raises as `read_wave` does.

    An array has one channel, which is read whatever the selection says.
    """
    found_rate = cell.get("sampling_rate")
    if isinstance(found_rate, np.integer) or (isinstance(found_rate, float) and found_rate.is_integer()):
        found_rate = int(found_rate)
    if not isinstance(found_rate, int) or isinstance(found_rate, bool) or found_rate < 1:
        raise UserError(f"{name}: expected the name of a file, or 'array' and 'sampling_rate', found {cell!r:.60}")
    with about(f"{name}: array"):
        samples = as_samples(cell.get("array"))
    with about(name):
        return _converted(samples, found_rate, rate, selection or Selection())


def _converted(samples: np.ndarray, found_rate: int, rate: int, selection: Selection) -> Wave:
    """Return the selected part of samples (S,) at another rate."""
    first, seconds = round(selection.offset * found_rate), len(samples) / found_rate
    end = seconds if selection.duration is None else selection.offset + selection.duration
    if samples.size and (first >= len(samples) or end > seconds + _MISSING):
        raise selection.too_long(seconds)
    chosen = (
        samples[first:] if selection.duration is None else samples[first:][: round(selection.duration * found_rate)]
    )
    if not len(chosen):
        raise UserError("holds no samples")
    converter = Converter(found_rate, rate)
    converted = np.concatenate([converter.add(chosen[:, None]), converter.rest()])
    odd = [_GOES_ON] if not selection.more_expected and end < seconds - _MISSING else []
    if not len(converted):
        raise UserError(f"is shorter than a sample at {rate:,} a second")
    return Wave(np.ascontiguousarray(converted, np.float32), rate, (*converter.remarks, *odd))


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
            f"expected samples between -1 and 1, found whole numbers; divide them by {FULL_SCALE:,}, if of 16 bits"
        )
    with np.errstate(over="ignore"):  # reported below
        samples = samples.astype(np.float32)
    check_numbers(samples)
    return samples


def of_pcm16(data: bytes) -> np.ndarray:
    """Return the samples (S,), between -1 and 1, of 16-bit PCM, little endian."""
    return np.frombuffer(data, "<i2").astype(np.float32) / FULL_SCALE


def to_pcm16(samples: np.ndarray) -> bytes:
    """Return samples (S,), between -1 and 1, as 16-bit PCM, little endian."""
    return (samples * (FULL_SCALE - 1)).round().astype("<i2").tobytes()


def pieces(wave: Wave, seconds: float) -> Iterator[np.ndarray]:
    """Yield the samples in pieces of `seconds`, as from a microphone."""
    size = max(1, round(seconds * wave.rate))
    for first in range(0, len(wave.samples), size):
        yield wave.samples[first : first + size]

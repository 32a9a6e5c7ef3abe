"""Recordings that training sounds are mixed with: noise, and the responses of rooms.

Legend: S samples of sound.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np

from ernie.audio.convert import require
from ernie.audio.wave import Selection, read_wave
from ernie.errors import UserError, about

_SUFFIXES = frozenset(".wav .flac .ogg .opus .mp3 .aif .aiff .au .sph .w64 .caf".split())
_ROOMS = 256  # responses that stay in memory


@lru_cache(maxsize=8)
def recordings(patterns: tuple[str, ...]) -> tuple[Path, ...]:
    """Return the sound files that are meant by files, folders and patterns, such as `noise/**/*.wav`, in order.

    Raises UserError where one means none.
    """
    found: dict[Path, None] = {}
    for pattern in patterns:
        path = Path(pattern).expanduser()
        if path.is_file():
            files = [path]
        elif path.is_dir():
            files = [file for file in path.rglob("*") if file.suffix.lower() in _SUFFIXES and file.is_file()]
        elif any(mark in pattern for mark in "*?["):
            base = Path(path.anchor) if path.is_absolute() else Path()
            files = [file for file in base.glob(str(path.relative_to(path.anchor))) if file.is_file()]
        else:
            files = []
        if not files:
            raise UserError(f"there is no sound file at {pattern}; give files, folders or patterns")
        found |= dict.fromkeys(sorted(files))
    return tuple(found)


@lru_cache(maxsize=1 << 16)
def seconds_of(file: Path) -> float:
    """Return the duration of a file in seconds.

    Raises UserError if it cannot be read, has no sound, does not say how long it is, or breaks off.
    """
    soundfile = require("soundfile")
    with about(file):
        try:
            with soundfile.SoundFile(str(file)) as sound:
                frames, rate = sound.frames, sound.samplerate
                if not frames or not sound.seekable():
                    raise UserError("has no sound, or cannot be read from any place; leave it out")
                sound.seek(max(0, frames - 1))
                if not len(sound.read(1)):
                    raise UserError("breaks off; fetch it again, or leave it out")
        except (RuntimeError, OSError, OverflowError) as error:
            raise UserError(f"is no sound that can be read from any place: {error}") from None
    return frames / rate


def drawn_part(files: tuple[Path, ...], count: int, rate: int, rng: np.random.Generator) -> np.ndarray:
    """Return `count` samples (S,) from a random place of a random file; a file that is shorter is repeated."""
    file, place = files[rng.integers(len(files))], rng.random()
    needed, seconds = count / rate, seconds_of(file)
    if seconds <= needed:
        whole = read_wave(file, rate).samples
        first = int(place * len(whole))
        return np.resize(np.roll(whole, -first), count)
    found = read_wave(file, rate, selection=Selection(place * (seconds - needed), needed)).samples
    return np.resize(found, count)


def drawn_response(files: tuple[Path, ...], rate: int, rng: np.random.Generator) -> np.ndarray:
    """Return the response (S,) of a random file, a recording of an impulse in a room, from its peak on."""
    return response_of(files[rng.integers(len(files))], rate)


@lru_cache(maxsize=_ROOMS)
def response_of(file: Path, rate: int) -> np.ndarray:
    """Return the response (S,) that a file holds in its first channel, from its peak on.

    Other channels are those of other microphones, which the sound reaches at other times: no place hears their mean.
    Raises UserError if it is silent.
    """
    samples = read_wave(file, rate, selection=Selection(channel="1")).samples
    peak = int(np.abs(samples).argmax())
    if not samples[peak]:
        raise UserError(f"{file}: is silent, and no response of a room; leave it out")
    return samples[peak:] / samples[peak]

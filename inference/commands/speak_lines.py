"""Speak texts into a file or a stream: audio is written while the rest is still being synthesized."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np

from ernie.audio.convert import require
from ernie.audio.wave import to_pcm16
from ernie.data.read_lines import Line
from ernie.errors import UserError
from ernie.text.blank import is_blank
from inference.rows import LeftOut
from inference.speaker import TextSpeaker


def into_file(speaker: TextSpeaker, lines: Iterable[Line], file: Path, log: TextIO | None) -> None:
    """Write the audio of lines, one after the other, in the format that the file's suffix names.

    A line that cannot be spoken is noted and left out; at the end UserError is raised for such lines, and if there is
    nothing to say.  Raises it at once for a file that cannot be written.
    """
    soundfile = require("soundfile")
    if not file.absolute().parent.is_dir():
        raise UserError(f"{file}: cannot be written: there is no folder {file.parent}")
    if file.is_dir():
        raise UserError(f"{file}: is a folder; give a file, such as {file / 'spoken.wav'}")
    if not soundfile.check_format(file.suffix[1:].upper()):
        raise UserError(f"{file}: its ending names no format of sound; choose another, such as .wav, .flac or .ogg")
    opened: list[Any] = []

    @contextmanager
    def writing() -> Iterator[None]:
        try:
            yield
        except (OSError, TypeError, ValueError, soundfile.SoundFileError) as error:
            reason = getattr(error, "error_string", "") or getattr(error, "strerror", "") or str(error)
            raise UserError(f"{file}: cannot be written as sound: {reason.rstrip('.')}") from None

    def write(samples: np.ndarray) -> None:
        with writing():
            if not opened:  # only once there is audio: the file may hold another recording
                file.open("ab").close()  # its error says why a file cannot be written
                opened.append(soundfile.SoundFile(file, "w", speaker.sample_rate, 1))
            opened[0].write(samples)

    try:
        _say(speaker, lines, write, str(file), log)
    finally:
        with writing():
            for sound in opened:
                sound.close()


def into_stream(speaker: TextSpeaker, lines: Iterable[Line], out: BinaryIO, log: TextIO | None) -> None:
    """Write the audio of lines as 16-bit samples (little endian), as soon as they are synthesized; as `into_file`."""

    def write(samples: np.ndarray) -> None:
        out.write(to_pcm16(samples))
        out.flush()

    _say(speaker, lines, write, "standard output", log)


def _say(
    speaker: TextSpeaker, lines: Iterable[Line], write: Callable[[np.ndarray], None], name: str, log: TextIO | None
) -> None:
    samples, seconds_spent, first_delay = 0, 0.0, 0.0
    left_out = LeftOut("could not be spoken")
    for line in lines:
        text = (line.text or "").strip()
        if line.text is not None and is_blank(text):
            continue
        if problem := line.problem or speaker.problem(text):
            left_out.add(f"line {line.number}: {problem}")
            continue
        began = time.perf_counter()
        for piece in speaker.speak(text):
            write(piece)
            if not samples:
                first_delay = time.perf_counter() - began
            samples += len(piece)
        seconds_spent += time.perf_counter() - began
    if log is not None and samples:
        seconds = samples / speaker.sample_rate
        print(
            f"{name}: {seconds:.1f} s of sound in {seconds_spent:.2f} s, "
            f"real-time factor {seconds_spent / seconds:.3f}, the first of it after {first_delay:.2f} s",
            file=log,
        )
    left_out.raise_if_any()
    if not samples:
        raise UserError("there is nothing in the text that could be said")

"""Texts that are spoken, and their sound, which goes out while the rest of it is still to be made."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import numpy as np

from ernie.audio.wave import require
from ernie.errors import UserError
from ernie.text.blank import is_blank
from finetune.speaker import TextSpeaker


def into_file(speaker: TextSpeaker, texts: Iterable[str], file: Path, told: TextIO | None) -> None:
    """Write the sound of texts, one after the other, in the format that the file's name ends with.

    Raises UserError for a file that cannot be written, and as `TextSpeaker.speak` does.
    """
    soundfile = require("soundfile")
    if not file.absolute().parent.is_dir():
        raise UserError(f"{file}: cannot be written: there is no folder {file.parent}")
    with ExitStack() as stack:
        opened: list[Any] = []

        def write(samples: np.ndarray) -> None:
            if not opened:  # not before there is something to write: another sound may be in the file
                try:
                    opened.append(stack.enter_context(soundfile.SoundFile(file, "w", speaker.rate, 1)))
                except (OSError, TypeError, ValueError, soundfile.SoundFileError) as error:
                    reason = getattr(error, "error_string", "") or str(error)
                    raise UserError(f"{file}: cannot be written as sound: {reason.rstrip('.')}") from None
            opened[0].write(samples)

        _say(speaker, texts, write, str(file), told)


def into_stream(speaker: TextSpeaker, texts: Iterable[str], out: BinaryIO, told: TextIO | None) -> None:
    """Write the sound of texts as samples of 16 bits (little endian), as soon as they are made."""

    def write(samples: np.ndarray) -> None:
        out.write((samples * 32767).round().astype("<i2").tobytes())
        out.flush()

    _say(speaker, texts, write, "standard output", told)


def _say(
    speaker: TextSpeaker, texts: Iterable[str], write: Callable[[np.ndarray], None], name: str, told: TextIO | None
) -> None:
    samples, spent, first = 0, 0.0, 0.0
    for text in texts:
        if is_blank(text):
            continue
        began = time.perf_counter()
        for piece in speaker.speak(text.strip()):
            write(piece)
            if not samples:
                first = time.perf_counter() - began
            samples += len(piece)
        spent += time.perf_counter() - began
    if not samples:
        raise UserError("there is nothing in the text that could be said")
    if told is not None:
        seconds = samples / speaker.rate
        print(
            f"{name}: {seconds:.1f} s of sound in {spent:.2f} s, real-time factor {spent / seconds:.3f}, the first of "
            f"it after {first:.2f} s",
            file=told,
        )

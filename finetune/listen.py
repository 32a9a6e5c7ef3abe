"""Sound that comes from files or from a microphone, and its transcript that goes out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import BinaryIO, TextIO

import numpy as np

from ernie.audio.wave import read_wave
from ernie.decode.stream import Stream
from ernie.errors import UserError, about
from finetune.model import FinetunedModel
from finetune.recognizer import SpeechRecognizer, transcribing

_PIECE = 0.1  # seconds of sound that are read at a time
_SOUND_FILES = (b"RIFF", b"fLaC", b"OggS")  # how they begin


def from_files(model: FinetunedModel, names: Sequence[str], times: bool, out: TextIO, told: TextIO | None) -> None:
    """Transcribe files, a line each; with `times` each word has the seconds before it.

    Raises UserError for a file that cannot be read, after the transcripts of those before it.
    """
    rate = transcribing(model).features.rate
    column = transcribing(model).audio
    for name in names:
        wave = read_wave(name, rate)
        began = time.perf_counter()
        with about(name):
            (answer,) = model.predict([{column: {"array": wave.samples, "sampling_rate": rate}}])
        spent = time.perf_counter() - began
        words = answer["transcript"].split()
        if times:
            words = [f"{second:.2f} {word}" for second, word in zip(answer["seconds"], words, strict=True)]
        out.write(("  " if times else " ").join(words) + "\n")
        out.flush()
        for remark in wave.remarks if told is not None else ():
            print(f"note: {name}: the sound {remark}", file=told)
        _tell(told, name, wave.seconds, spent)


def from_samples(model: FinetunedModel, source: BinaryIO, out: TextIO, told: TextIO | None) -> None:
    """Transcribe samples of 16 bits (little endian, one channel, at the model's rate) as they come."""
    recognizer = SpeechRecognizer(model)
    stream, spent, heard, held = Stream(recognizer), 0.0, 0, b""
    size = 2 * round(_PIECE * recognizer.rate)
    read = getattr(source, "read1", source.read)  # the former gives what is there already
    with about("standard input"):
        data = read(size)
        if not data:
            raise UserError("holds no samples")
        if data[:4] in _SOUND_FILES:
            raise UserError("is a sound file, and samples alone are expected; give the name of the file")
        try:
            while data:
                held += data
                samples = np.frombuffer(held, "<i2", len(held) // 2).astype(np.float32) / 32768
                held = held[2 * len(samples) :]  # half of a sample, whose other half is still to come
                began = time.perf_counter()
                out.write(stream.push(samples))
                spent += time.perf_counter() - began
                heard += len(samples)
                out.flush()
                data = read(size)
        finally:  # also where Ctrl-C ends what one says: what was heard of it is written
            began = time.perf_counter()
            out.write(stream.finish() + "\n")
            out.flush()
    if held and told is not None:
        print("note: standard input: half a sample behind the last whole one is left out", file=told)
    _tell(told, "standard input", heard / recognizer.rate, spent + time.perf_counter() - began)


def _tell(told: TextIO | None, name: str, seconds: float, spent: float) -> None:
    if told is not None and seconds:
        factor = spent / seconds
        print(f"{name}: {seconds:.1f} s of sound in {spent:.2f} s, real-time factor {factor:.3f}", file=told)

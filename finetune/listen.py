"""Sound that comes from files or from a microphone, and its transcript that goes out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import BinaryIO, TextIO

import numpy as np

from ernie.audio.wave import Loudness, read_wave
from ernie.decode.stream import Stream
from ernie.decode.words import Words
from ernie.errors import UserError, about
from ernie.text.incoming import has_no_spaces
from finetune.model import FinetunedModel
from finetune.recognizer import SpeechRecognizer, Transcribing, transcribing

_PIECE = 0.1  # seconds of sound that are read at a time
_BETWEEN = "  "  # words that have a time before them
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
            words = [_timed(second, word) for second, word in zip(answer["seconds"], words, strict=True)]
        out.write((_BETWEEN if times else " ").join(words) + "\n")
        out.flush()
        for remark in wave.remarks if told is not None else ():
            print(f"note: {name}: the sound {remark}", file=told)
        _tell(told, name, wave.seconds, spent)


def from_samples(model: FinetunedModel, source: BinaryIO, times: bool, out: TextIO, told: TextIO | None) -> None:
    """Transcribe samples of 16 bits (little endian, one channel, at the model's rate) as they come.

    With `times` each word has the seconds before it.  Raises UserError where there is no sample.
    """
    recognizer = SpeechRecognizer(model)
    stream, spent, heard, held = Stream(recognizer), 0.0, 0, b""
    write, loudness = _WithTimes(model, out) if times else _Plain(out), Loudness()
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
                new = stream.push(samples)
                write.more(stream.state, new)
                spent += time.perf_counter() - began
                heard += len(samples)
                loudness.hear(samples)
                out.flush()
                data = read(size)
        finally:  # also where Ctrl-C ends what one says: what was heard of it is written
            began = time.perf_counter()
            if heard:
                new = stream.finish()
                write.more(stream.state, new, done=True)
                out.write("\n")
                out.flush()
        if not heard:
            raise UserError("holds no samples: half of one is all there is")
    if held and told is not None:
        print("note: standard input: half a sample behind the last whole one is left out", file=told)
    for remark in loudness.remarks if told is not None else ():
        print(f"note: standard input: the sound {remark}", file=told)
    _tell(told, "standard input", heard / recognizer.rate, spent + time.perf_counter() - began)


class _Plain:
    """Writes text as it comes."""

    def __init__(self, out: TextIO):
        self._out = out

    def more(self, _: Transcribing, new: str, done: bool = False) -> None:
        self._out.write(new)


class _WithTimes:
    """Writes each word, once nothing can join it, with the seconds before it."""

    def __init__(self, model: FinetunedModel, out: TextIO):
        self._seconds, self._out = transcribing(model).seconds, out
        self._words = Words(model.tokenizer.decode)
        self._spikes, self._text, self._written = 0, "", 0

    def more(self, state: Transcribing, new: str, done: bool = False) -> None:
        spikes = state.tokens.hearing[0].spikes
        for spike in spikes[self._spikes :]:
            self._words.add(spike.token)
        self._spikes, self._text = len(spikes), self._text + new
        words = self._text.split()
        # Of a script without spaces more may still be said of what is one word here.
        open_still = not done and has_no_spaces(self._text[-1:])
        for word in words[: len(words) - open_still]:
            firsts = self._words.firsts
            # What was handed out stays two words where a later token joins them.
            second = self._seconds(spikes[firsts[min(self._written, len(firsts) - 1)]].vector)
            self._out.write((_BETWEEN if self._written else "") + _timed(second, word))
            self._written += 1
        self._text = " ".join(words[len(words) - open_still :])


def _timed(second: float, word: str) -> str:
    return f"{second:.2f} {word}"


def _tell(told: TextIO | None, name: str, seconds: float, spent: float) -> None:
    if told is not None and seconds:
        factor = spent / seconds
        print(f"{name}: {seconds:.1f} s of sound in {spent:.2f} s, real-time factor {factor:.3f}", file=told)

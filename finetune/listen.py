"""Sound that comes from files or from a microphone, and its transcript that goes out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import BinaryIO, TextIO

import numpy as np

from ernie.audio.wave import Loudness, is_sound_file, read_wave
from ernie.decode.stream import Stream
from ernie.decode.words import Words, words_of
from ernie.errors import UserError, about
from ernie.text.incoming import has_no_spaces
from ernie.text.scripts import words_in
from finetune.model import FinetunedModel
from finetune.recognizer import SpeechRecognizer, Transcribing, hears_chunks, transcribing

_PIECE = 0.1  # seconds of sound that are read at a time
_LONG = 60.0  # seconds of sound that are transcribed at once
_BETWEEN = "  "  # words that have a time before them


def from_files(model: FinetunedModel, names: Sequence[str], times: bool, out: TextIO, told: TextIO | None) -> None:
    """Transcribe files, a line each; with `times` each word has the seconds before it.

    Raises UserError for a file that cannot be read, after the transcripts of those before it.
    """
    task = transcribing(model)
    rate = task.features.rate
    for name in names:
        wave = read_wave(name, rate)
        began = time.perf_counter()
        with about(name):
            if wave.seconds > _LONG and hears_chunks(task):
                text, seconds = _of_long(model, wave.samples)
            else:
                (answer,) = model.predict([{task.audio: {"array": wave.samples, "sampling_rate": rate}}])
                text, seconds = answer["transcript"], answer["seconds"]
        spent = time.perf_counter() - began
        if times:
            timed = zip(seconds, words_in(text), strict=True)
            text = _BETWEEN.join(_timed(second, word) for second, word in timed)
        out.write(text + "\n")
        out.flush()
        for remark in wave.remarks if told is not None else ():
            print(f"note: {name}: the sound {remark}", file=told)
        _tell(told, name, wave.seconds, spent)


def _of_long(model: FinetunedModel, samples: np.ndarray) -> tuple[str, list[float]]:
    """The transcript of a sound, and where each of its words begins, in as little memory as a short one takes."""
    recognizer = SpeechRecognizer(model)
    stream, step = Stream(recognizer), round(_LONG * recognizer.rate)
    for start in range(0, len(samples), step):
        stream.push(samples[start : start + step])
    stream.finish()
    spikes = stream.state.tokens.hearing[0].spikes
    text, firsts = words_of([spike.token for spike in spikes], model.tokenizer.decode)
    return text, [transcribing(model).seconds(spikes[first].vector) for first in firsts]


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
        if is_sound_file(data):
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
        self._spikes = self._written = 0
        self._inside = (
            False  # a word, of which more may come: some scripts have neither spaces nor letters that stand alone
        )

    def more(self, state: Transcribing, new: str, done: bool = False) -> None:
        spikes = state.tokens.hearing[0].spikes
        for spike in spikes[self._spikes :]:
            self._words.add(spike.token)
        self._spikes = len(spikes)
        words = words_in(new)
        if words and self._inside and not new[0].isspace() and not has_no_spaces(new[0]):
            self._out.write(words.pop(0))
        for word in words:
            firsts = self._words.firsts
            # What was handed out stays two words where a later token joins them.
            second = self._seconds(spikes[firsts[min(self._written, len(firsts) - 1)]].vector)
            self._out.write((_BETWEEN if self._written else "") + _timed(second, word))
            self._written += 1
        if new:
            self._inside = not new[-1].isspace() and not has_no_spaces(new[-1])


def _timed(second: float, word: str) -> str:
    return f"{second:.2f} {word}"


def _tell(told: TextIO | None, name: str, seconds: float, spent: float) -> None:
    if told is not None and seconds:
        factor = spent / seconds
        print(f"{name}: {seconds:.1f} s of sound in {spent:.2f} s, real-time factor {factor:.3f}", file=told)

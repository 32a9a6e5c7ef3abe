"""Transcribe audio files, or audio that arrives from a microphone, and write the transcripts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import BinaryIO, TextIO

from ernie.audio.convert import Loudness, Resampler
from ernie.audio.files import local_path, require_file
from ernie.audio.wave import Selection, is_sound_file, of_pcm16, read_wave
from ernie.data.labeled.row import Row
from ernie.decode.ctc import LINE_END, Spike
from ernie.decode.recognizer import Recognized, StreamState
from ernie.decode.stream import Stream
from ernie.decode.timed_words import Words, in_lines
from ernie.errors import NotFinite, UserError, about
from ernie.text.incoming import has_no_spaces
from ernie.text.scripts import words_in
from inference.captions import CaptionWriter, lines_of
from inference.recognizer import SpeechRecognizer, SpeechRecognizerState, channel_of_files, transcribe_task
from inference.rows import LeftOut
from inference.task_model import TaskModel

_PIECE = 0.1  # seconds of audio that are read at a time
_SEPARATOR = "  "  # between words with times


def from_files(
    model: TaskModel,
    names: Sequence[str],
    times: bool,
    out: TextIO,
    log: TextIO | None,
    captions: CaptionWriter | None = None,
) -> None:
    """Transcribe files, one line each; with `times` each word follows its start time in seconds.

    With `captions` their lines are written there, with the times of their words.  A file that cannot be transcribed is
    noted and its line left empty.  Raises UserError for missing files at once, and
    for such files at the end.
    """
    files = [local_path(name) for name in names]
    for file in files:
        require_file(file)
    task = transcribe_task(model)
    selection = Selection(channel=channel_of_files(task))
    rate, left_out = task.features.sample_rate, LeftOut("could not be transcribed", "file")
    for name, file in zip(names, files, strict=True):
        try:
            wave = read_wave(file, rate, name, selection)
            began = time.perf_counter()
            with about(name):
                row = Row({task.audio: {"array": wave.samples, "sampling_rate": rate}})
                (answer,) = model.answers([task.example(row, model.tokenizer)])
        except NotFinite:
            raise
        except UserError as error:
            reason = str(error).replace(f"column '{task.audio}': ", "")  # a file has no columns
            if captions is not None:
                captions.record({"error": reason}, name)
            else:
                out.write("\n")
            out.flush()
            left_out.add(reason)
            continue
        seconds_spent = time.perf_counter() - began
        for line in lines_of(answer):
            if captions is not None:
                captions.write(line, name)
                continue
            timed = (_timed(word.begin, word.word) for word in line.words)
            out.write((_SEPARATOR.join(timed) if times else line.text) + "\n")
        out.flush()
        for remark in wave.remarks if log is not None else ():
            print(f"note: {name}: the sound {remark}", file=log)
        _log_speed(log, name, wave.seconds, seconds_spent)
    left_out.raise_if_any()


def _stream_state(state: SpeechRecognizerState) -> StreamState:
    return state.tokens.stream_states[0]


def from_samples(
    model: TaskModel,
    source: BinaryIO,
    times: bool,
    out: TextIO,
    log: TextIO | None,
    rate: int | None = None,
    captions: CaptionWriter | None = None,
) -> None:
    """Transcribe 16-bit samples (little endian, one channel, `rate` a second) as they arrive.

    By default they have the model's rate; others are resampled.  With `times` each word follows its start time in
    seconds.  With `captions` each line is written there once it has ended.  Raises UserError when there are no samples.
    """
    recognizer = SpeechRecognizer(model)
    rate = rate or recognizer.sample_rate
    resampler = Resampler(rate, recognizer.sample_rate)
    stream, seconds_spent, received, pending = Stream(recognizer), 0.0, 0, b""
    writer: _PlainWriter | _TimedWriter | _LineWriter = _TimedWriter(model, out) if times else _PlainWriter(out)
    writer, loudness = writer if captions is None else _LineWriter(model, captions), Loudness()
    size = 2 * max(1, round(_PIECE * rate))
    read = getattr(source, "read1", source.read)  # read1 returns what is available
    with about("standard input"):
        data = read(size)
        if not data:
            raise UserError("holds no samples")
        if is_sound_file(data):
            raise UserError("is a sound file, and samples alone are expected; give the name of the file")
        try:
            while data:
                pending += data
                whole = len(pending) // 2 * 2
                samples, pending = of_pcm16(pending[:whole]), pending[whole:]  # half of a sample waits for the rest
                began = time.perf_counter()
                new = stream.push(resampler.more(samples))
                writer.write(stream.state, new)
                seconds_spent += time.perf_counter() - began
                received += len(samples)
                loudness.add(samples)
                out.flush()
                data = read(size)
        finally:  # also after Ctrl-C: the transcript so far is completed
            began = time.perf_counter()
            if received:
                new = stream.push(resampler.rest()) + stream.finish()
                writer.write(stream.state, new, done=True)
                out.flush()
        if not received:
            raise UserError("holds no samples, only half of one")
    if pending and log is not None:
        print("note: standard input: half a sample after the last whole one is left out", file=log)
    for remark in loudness.remarks if log is not None else ():
        print(f"note: standard input: the sound {remark}", file=log)
    _log_speed(log, "standard input", received / rate, seconds_spent + time.perf_counter() - began)


class _PlainWriter:
    """Writes text as it arrives."""

    def __init__(self, out: TextIO):
        self._out, self._ended = out, False

    def write(self, _: SpeechRecognizerState, new: str, done: bool = False) -> None:
        self._out.write(new)
        self._ended = new.endswith("\n") if new else self._ended
        if done and not self._ended:
            self._out.write("\n")


class _LineWriter:
    """Writes each line, with its words and times, once it has ended."""

    def __init__(self, model: TaskModel, captions: CaptionWriter):
        self._task, self._decode, self._captions = transcribe_task(model), model.tokenizer.decode, captions
        self._spikes: list[Spike] = []  # of the line so far
        self._count = 0  # of all tokens before, and of lines
        self._lines = 0

    def write(self, state: SpeechRecognizerState, _: str, done: bool = False) -> None:
        stream = _stream_state(state)
        new = stream.since(self._count)
        self._count += len(new)
        for spike in new:
            if spike.token == LINE_END:
                self._end_line(spike.quiet)
            else:
                self._spikes.append(spike)
        if done and (self._spikes or not self._lines):
            self._end_line(stream.edges.end)

    def _end_line(self, end: int) -> None:
        (line,) = lines_of(self._task.answer_of(Recognized(self._spikes, end), self._decode))
        self._captions.write(line)
        self._spikes = []
        self._lines += 1


class _TimedWriter:
    """Writes each word, once it is committed, after its start time in seconds."""

    def __init__(self, model: TaskModel, out: TextIO):
        self._seconds, self._out = transcribe_task(model).seconds, out
        self._words = Words(in_lines(model.tokenizer.decode))
        self._begins: list[int] = []  # of all tokens so far, in frames
        self._written = 0
        self._new_line = True
        # Whether the last word may continue: some scripts have neither spaces nor characters that stand alone.
        self._in_word = False

    def write(self, state: SpeechRecognizerState, new: str, done: bool = False) -> None:
        for spike in _stream_state(state).since(len(self._begins)):
            self._words.add(spike.token)
            self._begins.append(spike.begin)
        for number, line in enumerate(new.split("\n")):
            if number:
                self._end_line()
            self._write(line)
        if done and not (self._new_line and self._written):
            self._end_line()

    def _end_line(self) -> None:
        self._out.write("\n")
        self._new_line, self._in_word = True, False

    def _write(self, new: str) -> None:
        words = words_in(new)
        if words and self._in_word and not new[0].isspace() and not has_no_spaces(new[0]):
            self._out.write(words.pop(0))
        for word in words:
            firsts = self._words.firsts
            # Words that were committed as two stay two, even if a later token joins them.
            second = self._seconds(self._begins[firsts[min(self._written, len(firsts) - 1)]])
            self._out.write(("" if self._new_line else _SEPARATOR) + _timed(second, word))
            self._new_line = False
            self._written += 1
        if new:
            self._in_word = not new[-1].isspace() and not has_no_spaces(new[-1])


def _timed(second: float, word: str) -> str:
    return f"{second:.2f} {word}"


def _log_speed(log: TextIO | None, name: str, seconds: float, seconds_spent: float) -> None:
    if log is not None and seconds:
        factor = seconds_spent / seconds
        print(f"{name}: {seconds:.1f} s of sound in {seconds_spent:.2f} s, real-time factor {factor:.3f}", file=log)

"""Translate text that arrives word by word or line by line, and write the translation as it is ready."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from ernie.data.labeled.row import Place, Row
from ernie.decode.latency import MEASURES, Latency, average_lagging
from ernie.decode.stream import Stream
from ernie.errors import UserError, about
from ernie.text.blank import is_blank
from ernie.text.incoming import has_no_spaces, is_space
from ernie.text.scripts import words_in
from finetune.rows import groups_as_available
from finetune.translator import TextTranslator


def by_word(translator: TextTranslator, source: TextIO, out: TextIO, latency: TextIO | None = None) -> None:
    """Translate each line while its words arrive; delays are counted in words of both languages.

    Raises UserError, with its number, for a line that is not UTF-8 or has more tokens than the model was trained on.
    """
    report = _Report("word", latency)
    stream, line, number, line_open = Stream(translator), _LineTiming(), 1, False
    try:
        for word in _read_words(source):
            line.receive(len(words_in(word or "")))
            with about(f"line {number}"):
                new = stream.finish() if word is None else stream.push(word)
            line.emit(len(words_in(new)))
            out.write(new + "\n" * (word is None))
            out.flush()
            line_open = (line_open or bool(new)) and word is not None
            if word is None:
                report.line(number, line.delays, line.words, line.seconds, line)
                stream, line, number = Stream(translator), _LineTiming(), number + 1
    except UserError:
        if line_open:  # the message that follows does not belong to this line
            out.write("\n")
            out.flush()
        raise
    report.summary()


def by_line(translator: TextTranslator, lines: Iterable[str], out: TextIO, latency: TextIO | None = None) -> None:
    """Translate the lines available so far as one batch; delays are counted in tokens.  Raises as `by_word` does."""
    report = _Report("token", latency)
    rows = (Row({"text": line}, Place("", number)) for number, line in enumerate(lines, 1))

    def write(batch: Sequence[Row]) -> None:
        began = time.perf_counter()
        translations = translator.translate([row["text"] for row in batch], [f"line {row.place.line}" for row in batch])
        seconds = (time.perf_counter() - began) / len(batch)
        for row, (text, progress) in zip(batch, translations, strict=True):
            out.write(text + "\n")
            report.line(
                row.place.line or 0, [float(delay) for delay in progress.source_delays], progress.source, seconds
            )
        out.flush()

    for batch in groups_as_available(rows):
        try:
            write(batch)
        except UserError:  # a line is too long: the lines before the first such one are still written
            too_long = next((n for n, row in enumerate(batch) if not translator.fits(row["text"])), None)
            if too_long is None:
                raise
            if too_long:
                write(batch[:too_long])
            write(batch[too_long : too_long + 1])  # the error is this line's
    report.summary()


def _read_words(source: TextIO) -> Iterator[str | None]:
    """Yield each word as soon as it is complete, and None at the end of a line.  Raises UserError for invalid UTF-8.

    A character of a script without spaces also ends the word before it; a word after a space starts with one.
    Invisible characters do not make a word until the line has had a visible one: a line may hold nothing else.
    """
    piece, in_line, number, has_visible = "", False, 1, False
    while letter := source.read(1):
        if "\udc80" <= letter <= "\udcff":  # how surrogateescape represents a byte that is not UTF-8
            raise UserError(f"line {number}: is not UTF-8 text")
        in_line = letter != "\n"
        if not is_space(letter) and not has_no_spaces(letter):
            piece += letter
            continue
        if has_no_spaces(letter):
            yield piece + letter
            piece, has_visible = "", True
            continue
        has_visible = has_visible or not is_blank(piece)
        if has_visible and piece.strip():
            yield piece
            piece = ""
        piece = piece.rstrip() + " "
        if letter == "\n":
            yield None
            piece, number, has_visible = "", number + 1, False
    if piece.strip() and (has_visible or not is_blank(piece)):
        yield piece
    if in_line:
        yield None


class _LineTiming:
    """When the words of a line arrived, and when those of its translation were written."""

    def __init__(self) -> None:
        self.words, self.seconds = 0, 0.0  # words that have arrived, seconds spent computing
        self.delays: list[float] = []  # for each word written, how many words had arrived
        self.written_at: list[float] = []  # for each word written, the seconds since the first word arrived
        self._began = self._last = 0.0

    def receive(self, words: int) -> None:
        """Record that `words` words, perhaps none, have arrived."""
        self._last = time.perf_counter()
        if not self.words:
            self._began = self._last
        self.words += words

    def emit(self, words: int) -> None:
        """Record that `words` words are written, computed since the last arrival."""
        now = time.perf_counter()
        self.seconds += now - self._last
        self.delays += [float(self.words)] * words
        self.written_at += [now - self._began] * words

    @property
    def seconds_behind(self) -> float:
        """The computation-aware AL in seconds, where the source's length is the time until its end arrived."""
        return average_lagging(self.written_at, self._last - self._began, len(self.written_at))


class _Report:
    """Reports the latency of translations, if there is a stream to write to."""

    def __init__(self, unit: str, out: TextIO | None):
        self._unit, self._out = unit, out
        self._lines: list[Latency] = []
        self._aware_lagging: list[float] = []

    def line(
        self, number: int, delays: list[float], source: int, seconds: float, live: _LineTiming | None = None
    ) -> None:
        """Report a finished line: the delay of each written unit, the length of the source, the computing time."""
        if self._out is None or not delays or not source:
            return
        latency = Latency.of(delays, source, len(delays))
        self._lines.append(latency)
        aware = ""
        if live is not None:
            self._aware_lagging.append(live.seconds_behind)
            aware = f"; computation-aware AL {live.seconds_behind:.3f} s"
        milliseconds = 1000 * seconds / len(delays)
        speed = f"{milliseconds:.0f} ms per {self._unit} written"
        self._out.write(f"line {number}: {self._format(latency)}{aware}, {speed}\n")

    def summary(self) -> None:
        """Report the averages over all lines."""
        if self._out is not None and self._lines:
            lagging = self._aware_lagging
            aware = f"; computation-aware AL {statistics.mean(lagging):.3f} s" if lagging else ""
            self._out.write(f"mean of {len(self._lines):,} lines: {self._format(Latency.mean(self._lines))}{aware}\n")

    def _format(self, latency: Latency) -> str:
        measures = ", ".join(f"{short} {getattr(latency, name):.2f}" for short, name in MEASURES)
        return f"{measures} ({self._unit}s; AP a share)"

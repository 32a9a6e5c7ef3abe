"""Translate text that arrives word by word or line by line, and write the translation as it is ready."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TextIO

from ernie.data.labeled.row import Place, Row
from ernie.data.read_lines import Line
from ernie.decode.latency import MEASURES, Latency, average_lagging
from ernie.decode.stream import Stream
from ernie.errors import UserError
from ernie.formatting import plural
from ernie.text.incoming import END, Cut, cut_words, last_words
from ernie.text.scripts import words_in
from inference.rows import LeftOut, groups_as_available
from inference.translator import TextTranslator

_UNFINISHED = "could not be translated to the end"


def by_word(translator: TextTranslator, source: TextIO, out: TextIO, latency: TextIO | None = None) -> None:
    """Translate each line while its words arrive; delays are counted in words of both languages.

    A line that is not UTF-8, or has more tokens than the model was trained on, is translated to that point and noted.
    At the end UserError is raised for such lines.
    """
    report, left_out = _Report("word", latency), LeftOut(_UNFINISHED)
    stream, line, number, usable = Stream(translator), _LineTiming(), 1, True
    for word in read_words(source):
        ended, new = word == END, ""
        problem = word if isinstance(word, UserError) else None
        if usable and isinstance(word, str):
            line.receive(0 if ended else len(words_in(word)))
            try:
                new = stream.finish() if ended else stream.push(word)
            except UserError as error:
                problem = error
            line.emit(len(words_in(new)))
        if problem is not None and usable:
            left_out.add(f"line {number}: {problem}")
            usable = False
            with suppress(UserError):  # what is held back may be too long by itself
                new = stream.finish()
        out.write(new + "\n" * ended)
        out.flush()
        if ended:
            if usable:
                report.line(number, line.delays, line.words, line.seconds, line)
            stream, line, number, usable = Stream(translator), _LineTiming(), number + 1, True
    report.summary()
    left_out.raise_if_any()


def by_line(translator: TextTranslator, lines: Iterable[Line], out: TextIO, latency: TextIO | None = None) -> None:
    """Translate the lines available so far as one batch; delays are counted in tokens.

    A line that cannot be translated, as for `by_word`, becomes an empty line.
    """
    report, left_out = _Report("token", latency), LeftOut(_UNFINISHED)
    rows = (Row(line._asdict(), Place("", line.number)) for line in lines)
    for batch in groups_as_available(rows):
        problems = {row.place.line: row["problem"] or translator.problem(row["text"]) for row in batch}
        usable = [row for row in batch if not problems[row.place.line]]
        began = time.perf_counter()
        names = [f"line {row.place.line}" for row in usable]
        translations = iter(translator.translate([row["text"] for row in usable], names))
        seconds = (time.perf_counter() - began) / max(1, len(usable))
        for row in batch:
            number = row.place.line or 0
            if problem := problems[number]:
                out.write("\n")
                left_out.add(f"line {number}: {problem}")
                continue
            text, progress = next(translations)
            out.write(text + "\n")
            report.line(number, [float(delay) for delay in progress.source_delays], progress.source, seconds)
        out.flush()
    report.summary()
    left_out.raise_if_any()


def read_words(source: TextIO) -> Iterator[str | UserError]:
    """Yield each word as soon as it is complete, and END at the end of a line (see `cut_words`).

    Instead of the rest of a line that is not UTF-8, a UserError is yielded.
    """
    cut, readable = Cut(), True
    while letter := source.read(1):
        if readable and "\udc80" <= letter <= "\udcff":  # how surrogateescape represents a byte that is not UTF-8
            cut, readable = Cut(begun=True), False
            yield UserError("is not UTF-8 text; iconv -f ENCODING -t UTF-8 FILE converts a file")
        if readable or letter == "\n":
            readable = True
            cut, words = cut_words(cut, letter)
            yield from words
    yield from last_words(cut)


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
            lines, means = plural(len(self._lines), "line"), self._format(Latency.mean(self._lines))
            self._out.write(f"mean of {lines}: {means}{aware}\n")

    def _format(self, latency: Latency) -> str:
        measures = ", ".join(f"{short} {getattr(latency, name):.2f}" for short, name in MEASURES)
        return f"{measures} ({self._unit}s; AP a share)"

"""Text that comes in word by word or line by line, and its translation that goes out."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TextIO

from ernie.data.labelled.row import Place, Row
from ernie.decode.latency import MEASURES, Latency, average_lagging
from ernie.decode.stream import Stream
from ernie.errors import UserError, about
from ernie.text.blank import is_blank
from ernie.text.incoming import has_no_spaces, is_space
from ernie.text.scripts import words_in
from finetune.rows import as_they_come
from finetune.translator import TextTranslator


def by_word(translator: TextTranslator, source: TextIO, out: TextIO, latency: TextIO | None = None) -> None:
    """Translate each line while its words come in; delays are counted in words of both languages.

    Raises UserError, with its number, for a line that is no UTF-8 or has more tokens than the model has learnt.
    """
    told = _Report("words", latency)
    stream, line, number, begun = Stream(translator), _Line(), 1, False
    try:
        for word in _words(source):
            line.comes(len(words_in(word or "")))
            with about(f"line {number}"):
                new = stream.finish() if word is None else stream.push(word)
            line.goes(len(words_in(new)))
            out.write(new + "\n" * (word is None))
            out.flush()
            begun = (begun or bool(new)) and word is not None
            if word is None:
                told.line(number, line.delays, line.words, line.spent, line)
                stream, line, number = Stream(translator), _Line(), number + 1
    except UserError:
        if begun:  # what comes next does not belong to this line
            out.write("\n")
            out.flush()
        raise
    told.summary()


def by_line(translator: TextTranslator, lines: Iterable[str], out: TextIO, latency: TextIO | None = None) -> None:
    """Translate the lines that have come in, together; delays are counted in tokens.  Raises as `by_word` does."""
    told = _Report("tokens", latency)
    rows = (Row({"text": line}, Place("", number)) for number, line in enumerate(lines, 1))

    def write(group: Sequence[Row]) -> None:
        began = time.perf_counter()
        found = translator.translate([row["text"] for row in group], [f"line {row.place.line}" for row in group])
        spent = (time.perf_counter() - began) / len(group)
        for row, (text, progress) in zip(group, found, strict=True):
            out.write(text + "\n")
            told.line(row.place.line or 0, [float(delay) for delay in progress.behind], progress.source, spent)
        out.flush()

    for group in as_they_come(rows):
        try:
            write(group)
        except UserError:  # of a line that is too long: those before the first such one are written all the same
            wrong = next((n for n, row in enumerate(group) if not translator.fits(row["text"])), None)
            if wrong is None:
                raise
            if wrong:
                write(group[:wrong])
            write(group[wrong : wrong + 1])  # the error is this line's
    told.summary()


def _words(source: TextIO) -> Iterator[str | None]:
    """Words as soon as they are over, and None for the end of a line.  Raises UserError for what is no UTF-8.

    A letter of a script without spaces ends what comes before it; where a space stood before a piece, it has one.  What
    cannot be seen is no word of its own before the first that can: a line may hold nothing else.
    """
    piece, inside, number, seen = "", False, 1, False
    while letter := source.read(1):
        if "\udc80" <= letter <= "\udcff":  # what surrogateescape makes of a byte that is none of UTF-8
            raise UserError(f"line {number}: is not UTF-8 text")
        inside = letter != "\n"
        if not is_space(letter) and not has_no_spaces(letter):
            piece += letter
            continue
        if has_no_spaces(letter):
            yield piece + letter
            piece, seen = "", True
            continue
        seen = seen or not is_blank(piece)
        if seen and piece.strip():
            yield piece
            piece = ""
        piece = piece.rstrip() + " "
        if letter == "\n":
            yield None
            piece, number, seen = "", number + 1, False
    if piece.strip() and (seen or not is_blank(piece)):
        yield piece
    if inside:
        yield None


class _Line:
    """When the words of a line came, and when those of its translation went out."""

    def __init__(self) -> None:
        self.words, self.spent = 0, 0.0
        self.delays: list[float] = []  # words that had come
        self.went: list[float] = []  # seconds since the first word came, when each word went out
        self._began = self._last = 0.0

    def comes(self, words: int) -> None:
        """So many words, perhaps none, have come."""
        self._last = time.perf_counter()
        if not self.words:
            self._began = self._last
        self.words += words

    def goes(self, words: int) -> None:
        """So many words go out, computed since the last came."""
        now = time.perf_counter()
        self.spent += now - self._last
        self.delays += [float(self.words)] * words
        self.went += [now - self._began] * words

    @property
    def seconds_behind(self) -> float:
        """AL in seconds as it was, computing counted: the source takes until its end came."""
        return average_lagging(self.went, self._last - self._began, len(self.went))


class _Report:
    """Says how far translations stay behind, where somebody wants to know."""

    def __init__(self, unit: str, out: TextIO | None):
        self._unit, self._out = unit, out
        self._lines: list[Latency] = []
        self._behind: list[float] = []

    def line(self, number: int, delays: list[float], source: int, seconds: float, live: _Line | None = None) -> None:
        """A line is done: what was read of it before each thing that was written, and what it took to compute."""
        if self._out is None or not delays or not source:
            return
        measures = Latency.of(delays, source, len(delays))
        self._lines.append(measures)
        aware = ""
        if live is not None:
            self._behind.append(live.seconds_behind)
            aware = f"; with computing AL {live.seconds_behind:.3f} s"
        took = 1000 * seconds / len(delays)
        self._out.write(f"line {number}: {self._told(measures)}{aware}, {took:.0f} ms for each that is written\n")

    def summary(self) -> None:
        """What came out in the mean."""
        if self._out is not None and self._lines:
            aware = f"; with computing AL {statistics.mean(self._behind):.3f} s" if self._behind else ""
            told = self._told(Latency.mean(self._lines))
            self._out.write(f"mean of {len(self._lines):,} lines: {told}{aware}\n")

    def _told(self, measures: Latency) -> str:
        told = ", ".join(f"{short} {getattr(measures, name):.2f}" for short, name in MEASURES)
        return f"{told} ({self._unit}; AP a share)"

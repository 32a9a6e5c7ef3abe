"""Transcripts with times: lines of text with their words, as JSON lines or as captions (SRT, WebVTT)."""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple, TextIO
from unicodedata import category, east_asian_width

from ernie.text.incoming import has_no_spaces
from ernie.text.scripts import words_in
from ernie.text.surrogates import printable

CaptionFormat = Literal["srt", "vtt", "jsonl"]
_GAP = 0.8  # seconds between two words that part captions
_LONGEST = 7.0  # seconds that a caption lasts at most
_WIDTH = 42  # columns of a line of a caption, two for each full-width character
_LINES = 2  # lines of a caption


class TimedWord(NamedTuple):
    """A word, the seconds at which it begins and ends, and its confidence."""

    word: str
    begin: float
    end: float
    confidence: float


class Line(NamedTuple):
    """A line of a transcript, with its words."""

    text: str
    words: list[TimedWord]
    alternatives: list[dict[str, Any]] | None = None


def lines_of(answer: Mapping[str, Any]) -> list[Line]:
    """Return the lines of an answer of the kind transcribe, at least one, which is empty if nothing was said."""
    lines, first = [], 0
    for text in answer["transcript"].split("\n"):
        words = words_in(text)
        last = first + len(words)
        values = (answer[key][first:last] for key in ("seconds", "ends", "confidences"))
        timed = [TimedWord(*word) for word in zip(words, *values, strict=True)]
        lines.append(Line(text, timed, answer.get("alternatives")))
        first = last
    return lines


class CaptionWriter:
    """Writes lines in one of the formats; `name` is that of the sound, which JSON lines repeat."""

    def __init__(self, kind: CaptionFormat, out: TextIO):
        self._kind, self._out, self._written = kind, out, 0
        if kind == "vtt":
            out.write("WEBVTT\n\n")

    def write(self, line: Line, name: str = "") -> None:
        """Write a line; captions of a line in which nothing is said are left out."""
        if self._kind == "jsonl":
            more = {} if line.alternatives is None else {"alternatives": line.alternatives}
            self.record(line_record(line) | more, name)
        else:
            for words in _captions(line.words):
                self._written += 1
                self._out.write(self._caption(words))
        self._out.flush()

    def record(self, record: Mapping[str, Any], name: str = "") -> None:
        """Write a line of JSON, if that is the format."""
        named = {"file": printable(name)} if name else {}
        if self._kind == "jsonl":
            self._out.write(json.dumps(named | {**record}, ensure_ascii=False) + "\n")

    def _caption(self, words: Sequence[TimedWord]) -> str:
        text = "\n".join(_wrapped(words))
        mark, number = (".", "") if self._kind == "vtt" else (",", f"{self._written}\n")
        text = html.escape(text, quote=False) if self._kind == "vtt" else text
        begin, end = (_clock(seconds, mark) for seconds in (words[0].begin, max(word.end for word in words)))
        return f"{number}{begin} --> {end}\n{text}\n\n"


def line_record(line: Line) -> dict[str, Any]:
    """Return a line as plain data: its text, beginning, end, mean confidence and words."""
    if not line.words:
        return {"text": line.text, "words": []}
    return {
        "text": line.text,
        "begin": line.words[0].begin,
        "end": line.words[-1].end,
        "confidence": round(sum(word.confidence for word in line.words) / len(line.words), 6),
        "words": [word._asdict() for word in line.words],
    }


def _captions(words: Sequence[TimedWord]) -> Iterator[list[TimedWord]]:
    """Yield the words of each caption: parted at pauses, and where one would be too long."""
    own: list[TimedWord] = []
    for unit in _units(words):
        too_long = own and (
            unit[0].begin - own[-1].end >= _GAP
            or unit[-1].end - own[0].begin > _LONGEST
            or len(_wrapped([*own, *unit])) > _LINES
        )
        if too_long:
            yield own
            own = []
        own += unit
    if own:
        yield own


def _units(words: Sequence[TimedWord]) -> list[list[TimedWord]]:
    """Return words with the marks that no line may part from them: 。 begins no line, and 「 ends none."""
    units: list[list[TimedWord]] = []
    for word in words:
        last = units[-1][-1].word if units else ""
        if last and not _gap(last, word.word) and (_opens(last[-1]) or _closes(word.word[0])):
            units[-1].append(word)
        else:
            units.append([word])
    return units


def _opens(mark: str) -> bool:
    return category(mark) in ("Ps", "Pi")


def _closes(mark: str) -> bool:
    return category(mark).startswith("P") and not _opens(mark)


def _wrapped(words: Sequence[TimedWord]) -> list[str]:
    """Return the lines of a caption, none wider than `_WIDTH`; only what is wider than a line is cut within."""
    lines, line = [], ""
    for unit in _units(words):
        text = _joined(unit)
        longer = line + _gap(line, text) + text
        if line and _columns(longer) > _WIDTH:
            lines.append(line)
            longer = text
        line = longer
        while _columns(line) > _WIDTH:
            ends = [n for n, columns in enumerate(accumulate(map(_columns, line)), 1) if columns <= _WIDTH]
            lines.append(line[: ends[-1]])
            line = line[ends[-1] :]
    return [*lines, line]


def _columns(text: str) -> int:
    """Return how wide a text is: two columns for a full-width character, none for a mark on a letter."""
    widths = (0 if category(each) in ("Mn", "Me", "Cf") else 1 + (east_asian_width(each) in "WF") for each in text)
    return sum(widths)


def _joined(words: Sequence[TimedWord]) -> str:
    text = ""
    for word in words:
        text += _gap(text, word.word) + word.word
    return text


def _gap(text: str, word: str) -> str:
    """Return what stands between a text and the word that follows: a space, or nothing in scripts without spaces."""
    return "" if not text or has_no_spaces(text[-1]) or has_no_spaces(word[0]) else " "


def _clock(seconds: float, mark: str) -> str:
    thousandths = round(seconds * 1000)
    minutes, rest = divmod(thousandths, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{rest // 1000:02}{mark}{rest % 1000:03}"

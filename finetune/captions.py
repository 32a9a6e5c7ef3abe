"""Transcripts with times: lines of text with their words, as JSON lines or as captions (SRT, WebVTT)."""

from __future__ import annotations

import html
import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TextIO

from ernie.text.incoming import has_no_spaces
from ernie.text.scripts import words_in
from ernie.text.surrogates import printable

CaptionFormat = Literal["srt", "vtt", "jsonl"]
_GAP = 0.8  # seconds between two words that part captions
_LONGEST = 7.0  # seconds of a caption
_WIDTH = 42  # characters of a line of a caption, which has two at most


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
        text = "\n".join(textwrap.wrap(_joined(words), _WIDTH, break_long_words=False))
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
    for word in words:
        too_long = own and (
            word.begin - own[-1].end >= _GAP
            or word.end - own[0].begin > _LONGEST
            or len(_joined([*own, word])) > 2 * _WIDTH
        )
        if too_long:
            yield own
            own = []
        own.append(word)
    if own:
        yield own


def _joined(words: Sequence[TimedWord]) -> str:
    text = ""
    for word in words:
        close = not text or has_no_spaces(text[-1]) or has_no_spaces(word.word[0])
        text += word.word if close else f" {word.word}"
    return text


def _clock(seconds: float, mark: str) -> str:
    thousandths = round(seconds * 1000)
    minutes, rest = divmod(thousandths, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{rest // 1000:02}{mark}{rest % 1000:03}"

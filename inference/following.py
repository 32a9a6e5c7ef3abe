"""What goes on in one stream, told step by step to someone who watches it: words, their times, what is not final yet.

What is told is plain data, as JSON has it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ernie.decode.ctc import LINE_END
from ernie.decode.latency import average_lagging
from ernie.decode.recognizer import RecognitionState
from ernie.decode.timed_words import Word, timed_words, words_of
from ernie.decode.translator import Progress
from ernie.text.scripts import words_in
from inference.incremental_text import CommittedText, newly_committed

_CONTEXT = 8  # words that were told and are decoded again with those that follow, at most twice as many
_DIGITS = 3  # of seconds, and of shares


class Lines(Protocol):
    """The state of some streams of a translator of lines (see `inference.translator`)."""

    @property
    def line(self) -> Any:
        """That of the lines which are being translated."""

    @property
    def latest(self) -> tuple[Progress, ...]:
        """The progress of the line that the last step was for."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """The number of each stream's line."""


class FollowedTranscript:
    """Follows a recognizer.

    It tells `words` that became final, each with its `text`, the `line` that it stands in, its `start` and `end` in
    seconds, and its `confidence`; and `tentative`, the text after them that may still change.  Lines count from 0, the
    one that the stream is in at first.  `seconds` tells when a frame is.
    """

    def __init__(
        self,
        decode: Callable[[Sequence[int]], str],
        seconds: Callable[[int], float],
        state: CommittedText[RecognitionState],
        stream: int = 0,
    ):
        self._decode, self._seconds = decode, seconds
        own = state.tokens.stream_states[stream]
        self._line, self._seen = 0, own.committed  # the number of the line, and of the tokens that were seen
        ends = [n for n, spike in enumerate(own.spikes) if spike.token == LINE_END]
        self._spikes = list(own.spikes[max(ends, default=-1) + 1 :])  # the last tokens of the line
        self._told = _final_words(self._decode([spike.token for spike in self._spikes]))  # of their words
        self._tentative = ""

    def add(self, state: CommittedText[RecognitionState], stream: int = 0) -> dict[str, Any]:
        own = state.tokens.stream_states[stream]
        new, self._seen = own.since(self._seen), own.committed
        words = list[dict[str, Any]]()
        for spike in new:
            if spike.token != LINE_END:
                self._spikes.append(spike)
                continue
            words += self._final(spike.quiet, is_over=True)
            self._line, self._spikes, self._told = self._line + 1, [], 0
        words += self._final(own.edges.end, is_over=own.closed)
        before, self._tentative = self._tentative, "" if own.closed else self._after(own.likely)
        if not words and self._tentative == before:
            return {}
        return {"words": words, "tentative": self._tentative}

    def _final(self, end: int, *, is_over: bool) -> list[dict[str, Any]]:
        """Return the words of the line that are final and were not told."""
        if not self._spikes:
            return []
        text, words = timed_words(self._spikes, end, self._decode)
        count = len(words) if is_over else _final_words(text)
        told = [self._plain(word) for word in words[self._told : count]]
        self._told = max(self._told, count)
        if self._told > 2 * _CONTEXT:
            self._forget(words)
        return told

    def _forget(self, words: list[Word]) -> None:
        """Forget tokens of words that were told long ago, unless the words after them depend on them."""
        dropped = self._told - _CONTEXT
        spikes = self._spikes[sum(len(word.tokens) for word in words[:dropped]) :]
        if words_in(self._decode([spike.token for spike in spikes])) == [word.text for word in words[dropped:]]:
            self._spikes, self._told = spikes, _CONTEXT

    def _after(self, likely: tuple[int, ...]) -> str:
        """Return the text after the words that were told, if these tokens come next."""
        words = words_in(text := self._decode([*(spike.token for spike in self._spikes), *likely]))
        for word in words[: self._told]:
            text = text[text.index(word) + len(word) :]
        return text.strip()

    def _plain(self, word: Word) -> dict[str, Any]:
        start, end = (round(self._seconds(frame), _DIGITS) for frame in (word.begin, word.end))
        confidence = round(word.confidence, _DIGITS)
        return {"text": word.text, "line": self._line, "start": start, "end": end, "confidence": confidence}


class FollowedTranslation:
    """Follows a translator of lines.

    It tells `words` that became final, each with its `text` and the `line` that it stands in; `after` tells how many
    words of that line had been read when it was begun.  Once a line is over, it tells its `lagging` in tokens: the AL
    of `ernie.decode.latency` with the translation itself as the reference.  Lines count from 0, the one that the stream
    is in at first.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], state: Lines, stream: int = 0):
        self._decode = decode
        self._first = self._number = state.numbers[stream]  # of the line, as states count
        self._told = _final_words(self._decode(list(state.line.progress[stream].written)))  # of its words

    def add(self, state: Lines, stream: int = 0) -> dict[str, Any]:
        is_over = state.numbers[stream] > self._number
        own = state.latest[stream] if is_over else state.line.progress[stream]
        line, told = self._number - self._first, dict[str, Any]()
        text, firsts = words_of(own.written, self._decode)
        words = words_in(text)
        count = len(words) if is_over else _final_words(text)
        if count > self._told:
            told["words"] = [
                {"text": words[n], "line": line, "after": self._read(own.read[: own.source_delays[firsts[n]]])}
                for n in range(self._told, count)
            ]
            self._told = count
        if is_over:
            if own.written and own.source:
                lagging = average_lagging(own.source_delays, own.source, len(own.written))
                told["lagging"] = {"line": line, "tokens": round(lagging, _DIGITS)}
            self._number, self._told = state.numbers[stream], 0
        return told

    def _read(self, tokens: Sequence[int]) -> int:
        return len(words_in(self._decode(list(tokens))))


def _final_words(text: str) -> int:
    """Return how many words of a line's text are final, while the line goes on."""
    return len(words_in(newly_committed("", text, False)))

"""The words of recognized tokens, with the time at which each of them begins and ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import NamedTuple

from ernie.decode.ctc import LINE_END, Spike
from ernie.text.scripts import words_in

AGAIN = 64  # tokens decoded again for each new one, at least; at most twice as many


class Word(NamedTuple):
    """A word, the frames at which it begins and ends, and how sure the model is of it, between 0 and 1.

    The confidence is the geometric mean of the probabilities of its tokens.
    """

    text: str
    begin: int
    end: int
    confidence: float
    tokens: tuple[int, ...] = ()


class Words:
    """The words of a text whose tokens arrive one by one; `firsts` are the indices of the tokens they begin with.

    In a script without spaces each character is a word.  For each new token only the last tokens of a long text are
    decoded again.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]):
        self.firsts: list[int] = []
        self._decode = decode
        self._recent: list[int] = []  # the last tokens, decoded again for each new one
        self._count = self._words_before = 0  # of all tokens, and of the words before the recent ones

    def add(self, token: int) -> None:
        """Add a token."""
        self._recent.append(token)
        self._count += 1
        text = self._decode(self._recent)
        words = self._words_before + len(words_in(text))
        del self.firsts[words:]  # an apostrophe may join two words
        self.firsts += [self._count - 1] * (words - len(self.firsts))
        if len(self._recent) >= 2 * AGAIN and text.endswith(tail := self._decode(self._recent[-AGAIN:])):
            self._recent, self._words_before = self._recent[-AGAIN:], words - len(words_in(tail))


def words_of(tokens: Sequence[int], decode: Callable[[Sequence[int]], str]) -> tuple[str, list[int]]:
    """Return the text of tokens, and the index of the token that each of its words begins with."""
    words = Words(decode)
    for token in tokens:
        words.add(token)
    text = decode(tokens)
    return text, words.firsts[: len(words_in(text))]


def timed_words(spikes: Sequence[Spike], end: int, decode: Callable[[Sequence[int]], str]) -> tuple[str, list[Word]]:
    """Return the text of tokens, and its words; `end` is the frame at which the last of them ends."""
    text, firsts = words_of([spike.token for spike in spikes], decode)
    lasts = [*firsts[1:], len(spikes)][: len(firsts)]  # none if nothing was recognized
    words = []
    for word, first, last in zip(words_in(text), firsts, lasts, strict=True):
        own = [spike for spike in spikes[first : max(last, first + 1)] if spike.token != LINE_END]
        after = spikes[first + len(own) :]
        words.append(word_of(word, own, after[0].quiet if after else end))
    return text, words


def in_lines(decode: Callable[[Sequence[int]], str]) -> Callable[[Sequence[int]], str]:
    """Return a decoder of tokens among which LINE_END ends a line."""

    def decode_lines(tokens: Sequence[int]) -> str:
        cuts = [-1, *(n for n, token in enumerate(tokens) if token == LINE_END), len(tokens)]
        return "\n".join(decode(tokens[first + 1 : last]) for first, last in pairwise(cuts))

    return decode_lines


def word_of(text: str, spikes: Sequence[Spike], end: int) -> Word:
    """Return the word that these tokens, at least one, write."""
    confidence = math.exp(sum(math.log(max(spike.probability, 1e-9)) for spike in spikes) / len(spikes))
    begin = spikes[0].begin
    return Word(text, begin, max(begin, end), confidence, tuple(spike.token for spike in spikes))

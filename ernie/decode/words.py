"""The token that each word of a text begins with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ernie.text.scripts import words_in

AGAIN = 64  # tokens decoded again for each new one, at least; at most twice as many


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

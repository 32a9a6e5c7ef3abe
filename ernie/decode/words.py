"""With which of its tokens each word of a text begins."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ernie.text.scripts import words_in

AGAIN = 64  # tokens that are looked at again for each new one, twice as many at most


class Words:
    """The words of a text whose tokens come one by one; `firsts` are the tokens that they begin with.

    A letter of a script without spaces is a word.  Of a long text no more than some tokens are looked at again for each
    one.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str]):
        self.firsts: list[int] = []
        self._decode = decode
        self._tokens: list[int] = []  # those that are looked at again
        self._count = self._before = 0  # of all tokens, and of the words before those that are looked at again

    def add(self, token: int) -> None:
        """One token more."""
        self._tokens.append(token)
        self._count += 1
        text = self._decode(self._tokens)
        words = self._before + len(words_in(text))
        del self.firsts[words:]  # an apostrophe may join two words
        self.firsts += [self._count - 1] * (words - len(self.firsts))
        if len(self._tokens) >= 2 * AGAIN and text.endswith(tail := self._decode(self._tokens[-AGAIN:])):
            self._tokens, self._before = self._tokens[-AGAIN:], words - len(words_in(tail))


def words_of(tokens: Sequence[int], decode: Callable[[Sequence[int]], str]) -> tuple[str, list[int]]:
    """The text of tokens, and with which of them each of its words begins."""
    words = Words(decode)
    for token in tokens:
        words.add(token)
    text = decode(tokens)
    return text, words.firsts[: len(words_in(text))]

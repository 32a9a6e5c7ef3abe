"""What hypotheses of a beam are ranked by besides their sound: hot words, and language models of words.

A scorer is a machine over tokens.  Its state is part of each hypothesis, as plain data: a token changes it, and adds to
the score of the hypothesis.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Protocol

from ernie.decode.ngram import BEGIN, END
from ernie.text.scripts import words_in

_REPLACED = "\N{REPLACEMENT CHARACTER}"  # what bytes that are not a whole character decode to
State = tuple[Any, ...]
Decode = Callable[[Sequence[int]], str]


class Scorer(Protocol):
    """Adds to the scores of hypotheses."""

    begin: State

    def extend(self, state: State, token: int) -> tuple[float, State]:
        """Return what a token adds to the score, and the state after it."""

    def end(self, state: State) -> float:
        """Return what the end of the sound adds to the score."""

    def most(self, state: State) -> Callable[[int], float]:
        """Return a quick function of what a token adds to the score at most: what has no chance is not extended."""


class HotWords:
    """Prefers some words or phrases: `weight` is added for each of their tokens.

    Contextual biasing by a prefix tree with failure links, as of Aho and Corasick (1975): what a beginning of a phrase
    has gained is taken back when the phrase does not go on, or the word that it ends with does (Zhao et al., 2019,
    "Shallow-fusion end-to-end contextual biasing").  `phrases` are tokens, `decode` turns tokens into text.
    """

    begin: State = (0,)

    def __init__(self, phrases: Sequence[Sequence[int]], weight: float, decode: Decode):
        self._weight = weight
        self._children: list[dict[int, int]] = [{}]
        self._depth, self._whole, self._token, self._parent = [0], [0], [-1], [0]
        for phrase in phrases:
            self._add(phrase)
        for node in range(1, len(self._depth)):  # what is kept of a node's bonus: that of the longest whole phrase
            self._whole[node] = self._depth[node] if self._whole[node] else self._whole[self._parent[node]]
        self._failure = self._failures()
        self._decode = decode
        self._continues = lru_cache(maxsize=None)(self._word_continues)

    def _add(self, phrase: Sequence[int]) -> None:
        node = 0
        for token in phrase:
            child = self._children[node].get(token)
            if child is None:
                child = self._children[node][token] = len(self._depth)
                self._children.append({})
                self._depth.append(self._depth[node] + 1)
                self._whole.append(0)
                self._token.append(token)
                self._parent.append(node)
            node = child
        if node:
            self._whole[node] = 1

    def _failures(self) -> list[int]:
        failure = [0] * len(self._depth)
        for node in sorted(range(1, len(failure)), key=self._depth.__getitem__):
            if self._depth[node] > 1:
                failure[node] = self._follow(failure, failure[self._parent[node]], self._token[node])
        return failure

    def _follow(self, failure: Sequence[int], node: int, token: int) -> int:
        while node and token not in self._children[node]:
            node = failure[node]
        return self._children[node].get(token, 0)

    def _word_continues(self, node: int, token: int) -> bool:
        """Whether a token makes the last word of a phrase longer, as neither a new word nor a mere space does."""
        phrase = [token]
        while node:
            phrase.insert(0, self._token[node])
            node = self._parent[node]
        words, longer = (words_in(self._decode(tokens)) for tokens in (phrase[:-1], phrase))
        return len(longer) == len(words) and longer != words

    def extend(self, state: State, token: int) -> tuple[float, State]:
        """Return what a token adds to the score, and the state after it."""
        (node,) = state
        child = self._children[node].get(token)
        if child is not None:
            return self._weight, (child,)
        kept = self._whole[node]
        if kept == self._depth[node] and node and self._continues(node, token):
            kept = self._whole[self._parent[node]]  # "art" within "artist"
        after = self._follow(self._failure, self._failure[node], token) if node else 0
        return self._weight * (kept - self._depth[node] + self._depth[after]), (after,)

    def end(self, state: State) -> float:
        """Return what the end of the sound adds to the score: an unfinished phrase loses its bonus."""
        (node,) = state
        return self._weight * (self._whole[node] - self._depth[node])

    def most(self, state: State) -> Callable[[int], float]:
        """Return a function of what a token adds to the score at most: that of its node."""
        (node,) = state
        longest = (
            self._depth[self._failure[node]] + 1 if self._weight >= 0 else 0
        )  # the phrase that goes on, of any token
        after = self._weight * ((self._whole[node] if longest else 0) - self._depth[node] + longest)
        bound = max(self._weight, after)
        return lambda token: bound


class WordModel(Protocol):
    """A language model of words."""

    order: int

    def score(self, history: Sequence[str], token: str) -> float:
        """Return the natural logarithm of the probability of a word after others."""

    def knows(self, word: str) -> bool:
        """Whether it has the word."""

    def entropy(self) -> float:
        """Return how many nats the model takes to predict a word of its own texts."""

    @property
    def words(self) -> Sequence[str]:
        """Its words in order, empty if it cannot list them."""


class WordFusion:
    """Scores each word, once the next one begins or the sound is over, by a language model of words.

    Its log probability is weighted by `alpha`, and `beta` is added; an unknown word also gets `unknown`, and does so as
    soon as no known word begins with its letters.  As pyctcdecode does.  In scripts without spaces a character is a
    word.
    """

    begin: State = ((), ())

    def __init__(self, model: WordModel, decode: Decode, alpha: float, beta: float, unknown: float):
        self._model, self._alpha, self._beta, self._unknown = model, alpha, beta, unknown
        self._words = lru_cache(maxsize=1 << 16)(lambda tokens: tuple(words_in(decode(tokens))))
        self._begins = lru_cache(maxsize=1 << 16)(partial(_begins_word, decode, self._words))

    def extend(self, state: State, token: int) -> tuple[float, State]:
        """Return what a token adds to the score, and the state after it."""
        history, pending = tuple(state[0]), tuple(state[1])
        scored = self._scored(pending)
        longer = (*pending, token)
        words = self._words(longer)
        if len(words) <= scored + 1:
            return self._hopeless(longer) - self._hopeless(pending), (history, longer)
        score = -self._hopeless(pending)
        for word in words[scored:-1]:
            score += self._score(history, word)
            history = (*history, word)[-max(1, self._model.order - 1) :]
        return score + self._hopeless((token,)), (history, (token,))

    def end(self, state: State) -> float:
        """Return what the end of the sound adds to the score."""
        history, pending = tuple(state[0]), tuple(state[1])
        words = self._words(pending)[self._scored(pending) :]
        ended = self._score_of_end(history, pending)
        return ended + self._alpha * min(0.0, self._model.score(self._context((*history, *words)), END))

    def most(self, state: State) -> Callable[[int], float]:
        """Return a function of what a token adds to the score at most: the score of the word that it ends."""
        history, pending = tuple(state[0]), tuple(state[1])
        ended = self._score_of_end(history, pending)
        last = pending[-1] if pending else None

        def bound(token: int) -> float:
            begins = self._begins(last, token)
            if begins is None:
                return math.inf
            further = (len(self._words((token,))) - 1) * max(0.0, self._beta)
            return ended + further if begins else 0.0

        return bound if self._alpha >= 0 >= self._unknown else lambda token: math.inf

    def _score_of_end(self, history: Sequence[str], pending: tuple[int, ...]) -> float:
        """Return what pending tokens add to the score once their last word is over."""
        score = -self._hopeless(pending)
        for word in self._words(pending)[self._scored(pending) :]:
            score += self._score(history, word)
            history = (*history, word)
        return score

    def _scored(self, pending: tuple[int, ...]) -> int:
        """Return how many words of pending tokens have been scored: all but the last, which may go on."""
        return max(0, len(self._words(pending)) - 1)

    def _score(self, history: Sequence[str], word: str) -> float:
        known = 0.0 if self._model.knows(word) else self._unknown
        return self._beta + self._alpha * (min(0.0, self._model.score(self._context(history), word)) + known)

    def _context(self, history: Sequence[str]) -> Sequence[str]:
        return history if len(history) >= self._model.order - 1 else (BEGIN, *history)

    def _hopeless(self, pending: tuple[int, ...]) -> float:
        """Return the score of a word that has begun: that of unknown ones if no known word begins like it."""
        known, begun = self._model.words, self._words(pending)
        if not known or not begun:
            return 0.0
        place = bisect_left(known, begun[-1])
        begins = place < len(known) and known[place].startswith(begun[-1])
        return 0.0 if begins else self._alpha * self._unknown


def _begins_word(
    decode: Decode, words: Callable[[tuple[int, ...]], tuple[str, ...]], last: int | None, token: int
) -> bool | None:
    """Return whether a token begins words of its own after another, or only makes that one's word longer.

    None where it does neither, or that is unclear: a mark, a part of a character, a token that does both.
    """
    pair = (token,) if last is None else (last, token)
    if any(not words((each,)) or _REPLACED in decode((each,)) for each in pair):
        return None
    own, before, both = words((token,)), () if last is None else words((last,)), words(pair)
    if both == (*before, *own):
        return True
    return False if len(own) == 1 and len(both) == len(before) and both[:-1] == before[:-1] else None

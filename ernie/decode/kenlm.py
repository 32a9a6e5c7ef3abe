"""Language models in KenLM's binary format (Heafield, 2011), read by the package kenlm."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np

from ernie.decode.ngram import BEGIN, END, UNKNOWN
from ernie.errors import UserError

_MAGIC = b"mmap lm http://kheafield.com/code"
_LOG10 = 2.302585092994046
_HAS_WORDS = 88 + 12  # where the header (lm/binary_format.hh) says whether the words are listed: one byte
_FIRST_WORD = b"<unk>\0"
_SCORES = 500_000  # scores that the entropy is estimated from: those of all words, after some
_LEAST, _MOST = 20, 2000  # words of the texts that it is estimated on


def is_kenlm_binary(path: Path) -> bool:
    """Return whether a file is in KenLM's binary format.  Raises UserError if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


def _listed_words(path: Path) -> list[str]:
    """Return the words of a file but for marks; none if it was built without a list of them (build_binary -v).

    They are at its end, each with a zero byte after it, <unk> first.
    """
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        start = content.rfind(_FIRST_WORD) if content[_HAS_WORDS : _HAS_WORDS + 1] == b"\1" else len(content)
        listed = content[start:].decode("utf-8", "surrogateescape").split("\0")
    return [word for word in listed if word and word not in (BEGIN, END, UNKNOWN, UNKNOWN.upper())]


class KenlmModel:
    """An n-gram model of words in KenLM's binary format; `words` are in order, and empty if it does not list them."""

    def __init__(self, path: Path):
        try:
            import kenlm
        except ImportError:
            raise UserError(
                f"{path}: KenLM's binary files need the package kenlm: pip install 'ernie-continual[kenlm]'; ARPA "
                "files need nothing"
            ) from None
        try:
            self._model: Any = kenlm.Model(str(path))
        except (OSError, RuntimeError) as error:
            raise UserError(f"{path}: cannot be read by kenlm: {str(error).strip().splitlines()[-1]}") from None
        self.order: int = self._model.order
        self._state: Any = kenlm.State
        self._path = path
        self.words = sorted(word for word in _listed_words(path) if self.knows(word))

    def score(self, history: Sequence[str], token: str) -> float:
        """Return the natural logarithm of the probability of a word after others, which may begin with <s>."""
        before = self._after(history)
        return float(self._model.BaseScore(before, token, self._state())) * _LOG10

    def _after(self, history: Sequence[str]) -> Any:
        """Return KenLM's state after some words."""
        before, after = self._state(), self._state()
        self._model.NullContextWrite(before)
        for word in history:
            self._model.BaseScore(before, word, after)
            before, after = after, before
        return before

    def entropy(self) -> float:
        """Return how many nats the model takes to predict a word, on texts that it makes up (always the same ones).

        Ends of texts are not counted.  Raises UserError if it cannot list its words.
        """
        return self._entropy

    @cached_property
    def _entropy(self) -> float:
        if not self.words:
            raise UserError(
                f"{self._path}: has no list of its words (build_binary -v), so that the beta which makes up for the "
                "probability of an average word is unknown; set beta, or build the file without -v"
            )
        rng, tokens, nats, mass = np.random.default_rng(0), [*self.words, END], 0.0, 0.0
        state = self._after([BEGIN])
        for _ in range(min(_MOST, max(_LEAST, _SCORES // len(tokens)))):
            after = self._state()
            logs = np.array([self._model.BaseScore(state, token, after) for token in tokens]) * _LOG10
            probabilities = np.exp(logs)
            nats -= float(probabilities[:-1] @ logs[:-1])
            mass += float(probabilities[:-1].sum())
            drawn = tokens[rng.choice(len(tokens), p=probabilities / probabilities.sum())]
            if drawn == END:
                state = self._after([BEGIN])
            else:
                self._model.BaseScore(state, drawn, after)
                state = after
        return nats / mass

    def knows(self, word: str) -> bool:
        """Whether it has the word."""
        return word in self._model

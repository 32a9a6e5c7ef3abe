"""Language models in KenLM's binary format (Heafield, 2011), read by the package kenlm."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ernie.decode.ngram import BEGIN
from ernie.errors import UserError

_MAGIC = b"mmap lm http://kheafield.com/code"
_LOG10 = 2.302585092994046


def is_kenlm_binary(path: Path) -> bool:
    """Return whether a file is in KenLM's binary format.  Raises UserError if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None


class KenlmModel:
    """An n-gram model of words in KenLM's binary format; its words cannot be listed."""

    words: Sequence[str] = ()

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

    def score(self, history: Sequence[str], token: str) -> float:
        """Return the natural logarithm of the probability of a word after others."""
        before, after = self._state(), self._state()
        if history[:1] == (BEGIN,):
            self._model.BeginSentenceWrite(before)
            history = history[1:]
        else:
            self._model.NullContextWrite(before)
        for word in history:
            self._model.BaseScore(before, word, after)
            before, after = after, before
        return float(self._model.BaseScore(before, token, after)) * _LOG10

    def entropy(self) -> float:
        """Return an estimate of the nats that a word takes, as its words cannot be listed: those of one in twenty."""
        return 3.0

    def knows(self, word: str) -> bool:
        """Whether it has the word."""
        return word in self._model

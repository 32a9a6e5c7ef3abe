"""`perplexity`: documents that an n-gram model of good text finds least probable are dropped."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ernie.config import check_least
from ernie.data.raw import Dropped, RawDocument
from ernie.data.read import read_documents
from ernie.decode.ngram import NgramModel
from ernie.errors import UserError
from ernie.text.scripts import words_in
from pretrain.corpus.clean.base import Comparison, Decision, Rejected, Taken, check_shares, filters

_DIGIT = str.maketrans("123456789", "000000000")


@filters.register("perplexity")
@dataclass(frozen=True)
class Perplexity(Comparison):
    """Drops the share `drop` of the documents, those that are least like the good text in `reference`.

    `reference` lists files, folders or patterns, read as those of `input` are.  A Kneser-Ney model of n-grams of up to
    `order` words learns from them; case and digits do not count, and a letter is a word in scripts without spaces.  Its
    perplexity on the lines of a document decides.  Source: CCNet divides Common Crawl into thirds so (Wenzek et al.,
    2020).
    """

    reference: list[str]
    drop: float = 0.1
    order: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_shares(self, "drop")
        if self.drop == 1:
            raise UserError("drop: 1 is all of the documents; give the share to drop, such as 0.1")
        check_least(self, order=1)
        if not self.reference:
            raise UserError("reference: expected at least one file of good text")

    def prepare(self) -> None:
        """Learn the model."""
        assert self._model

    def dtype(self) -> tuple[str, int]:
        """Return the type of the numbers in a note, and how many there are: the perplexity."""
        return "<f8", 1

    def note(self, document: RawDocument) -> np.ndarray:
        """Return the perplexity of the words and of the ends of lines."""
        lines = _lines(document.text)
        scored = sum(len(line) + 1 for line in lines)
        nats = -sum(self._model.total(line) for line in lines)
        return np.array([math.exp(nats / scored) if scored else math.inf])

    def decide(self, taken: Taken, again: int) -> Decision:
        """Return the documents with the highest perplexities; of equal ones the last are dropped."""
        rows = taken.rows()
        values = taken.notes["values"][rows, 0]
        worst = np.argsort(values, kind="stable")[len(rows) - int(self.drop * len(rows)) :]
        least = values[worst[0]] if len(worst) else 0.0
        because = np.column_stack((np.nan_to_num(values[worst], posinf=0), np.full(len(worst), np.nan_to_num(least))))
        order = np.argsort(worst)
        return Decision(taken.notes["document"][rows[worst[order]]], because[order].astype(np.int64))

    def explain(self, findings: np.ndarray, names: Sequence[str]) -> Rejected:
        """Return in words why a document is dropped."""
        found, least = findings[0].tolist()
        return Rejected("improbable", f"a perplexity of {found:,}, and those from {least:,} on are dropped")

    @cached_property
    def _model(self) -> NgramModel:
        documents = read_documents(self.reference)
        lines = [line for item in documents if not isinstance(item, Dropped) for line in _lines(item.text)]
        if not lines:
            raise UserError(f"reference: {', '.join(self.reference)}: there is no text to learn from")
        return NgramModel.learn(lines, self.order)


def _lines(text: str) -> list[list[str]]:
    """Return the words of each line that has any."""
    folded = text.lower().translate(_DIGIT).replace("<s>", " ").replace("</s>", " ")
    return [words for line in folded.split("\n") if (words := words_in(line))]

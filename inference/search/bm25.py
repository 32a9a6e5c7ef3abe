"""BM25: how well passages answer a query by the words that they share.  Legend: V terms, K postings, N passages."""

from __future__ import annotations

import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_K1, _B = 1.2, 0.75
# Scripts that are written without spaces: Chinese, Japanese, and Thai to Khmer.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_RUN = re.compile(rf"([{_UNSPACED}]+)|[^\W_{_UNSPACED}]+")
_ARRAYS, _TERMS = "bm25.npz", "terms.txt"


def words(text: str) -> np.ndarray:
    """Return the first and the past-last character (n, 2) of each word; a character is one where no spaces are."""
    found = list[tuple[int, int]]()
    for run in _RUN.finditer(text):
        begin, end = run.span()
        found += [(i, i + 1) for i in range(begin, end)] if run[1] else [(begin, end)]
    return np.array(found, np.int64).reshape(-1, 2)


def terms(text: str) -> Iterator[str]:
    """Yield the terms of a text: its words in lower case, without stemming.

    Of a script without spaces they are the characters, and each two neighbors.
    """
    text = unicodedata.normalize("NFKC", text).casefold()
    for run in _RUN.finditer(text):
        word = run[0]
        if run[1]:
            yield from word
            yield from (word[i : i + 2] for i in range(len(word) - 1))
        else:
            yield word


@dataclass(frozen=True, eq=False)
class Bm25:
    """The postings of each term: the passages that have it, and what it adds to their scores.

    A term of a query adds ln(1 + (N - n + 1/2) / (n + 1/2)) times f (k1 + 1) / (f + k1 (1 - b + b l)) to the score of a
    passage.  n is the number of passages with the term, of N in all.  f is the term's count in the passage, and l the
    passage's length by the mean.  k1 is 1.2 and b 0.75.  Robertson and Zaragoza, 2009, "The Probabilistic Relevance
    Framework: BM25 and Beyond", section 3.5; the 1 in the logarithm, as in Lucene, keeps frequent terms above 0.

    `numbers` gives the number of each term.  Its postings begin at `offsets` (V + 1,) in `passages` and `weights` (K,).
    """

    numbers: dict[str, int]
    offsets: np.ndarray
    passages: np.ndarray
    weights: np.ndarray
    count: int

    @classmethod
    def of(cls, texts: Iterable[str]) -> Bm25:
        """Count the terms of passages."""
        numbers: dict[str, int] = {}
        term_K, passage_K, count_K, lengths = array("i"), array("i"), array("i"), array("i")
        for passage, text in enumerate(texts):
            counts = Counter(terms(text))
            lengths.append(counts.total())
            for term, count in counts.items():
                term_K.append(numbers.setdefault(term, len(numbers)))
                passage_K.append(passage)
                count_K.append(count)
        found_K, order_K = np.array(term_K, np.int32), np.argsort(np.array(term_K, np.int32), kind="stable")
        in_passages_V = np.bincount(found_K, minlength=len(numbers)).astype(np.int64)
        length_N = np.array(lengths, np.float64)
        relative_N = length_N / max(length_N.mean() if len(length_N) else 0.0, 1e-9)
        passages_K, f_K = np.array(passage_K, np.int32)[order_K], np.array(count_K, np.float64)[order_K]
        idf_V = np.log1p((len(length_N) - in_passages_V + 0.5) / (in_passages_V + 0.5))
        saturated_K = f_K * (_K1 + 1) / (f_K + _K1 * (1 - _B + _B * relative_N[passages_K]))
        weights_K = np.repeat(idf_V, in_passages_V) * saturated_K
        offsets = np.concatenate([[0], np.cumsum(in_passages_V)])
        return cls(numbers, offsets, passages_K, weights_K.astype(np.float32), len(length_N))

    def scores(self, query: str) -> np.ndarray:
        """Return the score of each passage (N,): 0 for one without a word of the query."""
        scores_N = np.zeros(self.count, np.float32)
        for term in terms(query):
            if (number := self.numbers.get(term)) is not None:
                postings = slice(self.offsets[number], self.offsets[number + 1])
                scores_N[self.passages[postings]] += self.weights[postings]
        return scores_N

    def write(self, folder: Path) -> None:
        """Write the postings into the folder of an index."""
        np.savez(folder / _ARRAYS, offsets=self.offsets, passages=self.passages, weights=self.weights, count=self.count)
        (folder / _TERMS).write_text("".join(f"{term}\n" for term in self.numbers), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> Bm25:
        """Read what `write` has written.  Raises ValueError for files that do not belong together."""
        listed = (folder / _TERMS).read_text(encoding="utf-8").split("\n")[:-1]
        with np.load(folder / _ARRAYS, allow_pickle=False) as found:
            offsets, passages, weights, count = (found[name] for name in ("offsets", "passages", "weights", "count"))
        numbers = {term: number for number, term in enumerate(listed)}
        ends = len(passages) == len(weights) == offsets[-1] and (np.diff(offsets) >= 0).all()
        if not ends or len(offsets) != len(numbers) + 1 or not ((passages >= 0) & (passages < count)).all():
            raise ValueError(f"{_TERMS} and {_ARRAYS} do not belong together")
        return cls(numbers, offsets, passages, weights, int(count))

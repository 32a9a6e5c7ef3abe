"""`repeated_passages`: of passages that occur several times, in whatever documents, the first stays.

Legend: n words of a document, k occurrences of something in it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from ernie.config import check_least
from ernie.data.raw import RawDocument
from ernie.text.scripts import word_spans, words_in
from pretrain.corpus.clean.base import Comparison, Decision, Rejected, Taken, filters, with_lines
from pretrain.corpus.clean.groups import AT_ONCE, blocks, first_equal, written
from pretrain.corpus.clean.mapped import zeros

_FACTOR = 0x9E3779B97F4A7C15  # of polynomials modulo 2 ** 64: odd, so that it has an inverse
_WORDS = 1 << 20  # of which hashes are kept


class Passages(NamedTuple):
    """What is taken out of a document: `ranges` (k, 2) of its words, and the place where the first of them was."""

    ranges: np.ndarray
    place: str


@filters.register("repeated_passages")
@dataclass(frozen=True)
class RepeatedPassages(Comparison):
    """Takes out passages of at least `words` words that occur earlier, in another document or the same one.

    Words are what white space separates, with their punctuation; in scripts without spaces, each letter is one.  They
    are compared as they are written; white space does not count.  A document of which no word is left is dropped.

    A stretch of `words` words is taken out if an earlier one, which it does not overlap, is equal.  The text is read
    twice to find these: all that can be equal have the same winnowed hash (Schleimer et al., 2003), and of those that
    share one, digests of 128 bits decide.  Source: Lee et al. (2022, section 4.1) find repeats of 50 tokens, by a
    suffix array.
    """

    repairs = True
    rounds = 2
    words: int = 50

    def __post_init__(self) -> None:
        super().__post_init__()
        check_least(self, words=2)

    def dtype(self) -> tuple[str, int]:
        """Return the type of the numbers in a note, and how many there are: one or two hashes, and word numbers."""
        return "<u8", 3

    def note(self, document: RawDocument) -> np.ndarray:
        """Return the winnowed hashes: each with the first stretch that has it, and how many consecutive ones do."""
        words = words_in(document.text)
        if document.spans is not None or len(words) < self.words:
            return np.zeros((0, 3), np.uint64)
        grams = _hashes(words, self._gram)
        least = _sliding_min(grams, self._window)
        starts = np.flatnonzero(np.concatenate(([True], least[1:] != least[:-1])))
        return np.column_stack((least[starts], starts, np.diff(starts, append=len(least)))).astype(np.uint64)

    def note_again(self, document: RawDocument, findings: np.ndarray) -> np.ndarray:
        """Return the digests of some stretches, each as two numbers, and where each begins."""
        words = words_in(document.text)
        text = " ".join(words).encode()
        ends = np.cumsum([len(word.encode()) + 1 for word in words]).tolist()
        starts = np.concatenate([np.arange(first, stop) for first, stop in findings.tolist()])
        digests = [
            hashlib.blake2b(text[ends[i - 1] if i else 0 : ends[i + self.words - 1] - 1], digest_size=16).digest()
            for i in starts.tolist()
        ]
        return np.column_stack((np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2), starts.astype(np.uint64)))

    def decide(self, taken: Taken, again: int) -> Decision:
        """Return the stretches whose hash is not alone, as ranges; the second time, the passages and their places."""
        found = self._passages(taken) if again else self._candidates(taken)
        return written(taken.folder / f"found-{again}", found, 5 if again else 3)

    def explain(self, findings: np.ndarray, names: Sequence[str]) -> Passages:
        """Return what to take out."""
        source, line = findings[0, 2:].tolist()
        return Passages(findings[:, :2], f"{names[source]}:{line}")

    def follow(self, document: RawDocument, explained: Passages) -> RawDocument | Rejected:
        """Return the document without the passages."""
        left = without(document, explained.ranges)
        if not left.text.strip():
            return Rejected("earlier text", f"all of its text is in earlier passages, the first in {explained.place}")
        return left

    @property
    def _gram(self) -> int:
        """The number of words that a hash is of."""
        return (self.words + 1) // 2

    @property
    def _window(self) -> int:
        """The number of hashes in a stretch, the least of which stands for it."""
        return self.words - self._gram + 1

    def _candidates(self, taken: Taken) -> Iterator[np.ndarray]:
        """Yield rows (k, 3) of documents and ranges of stretches that may be equal to others."""
        firsts = first_equal(taken, 1)
        shared = zeros(taken.folder / "shared", np.dtype(bool), len(firsts))
        for block in blocks(len(firsts), AT_ONCE):
            later = np.flatnonzero(firsts[block] != np.arange(block.start, block.stop))
            shared[block.start + later] = True
            shared[firsts[block][later]] = True
            # The same least hash for more stretches than it can be in: some of them are of the same words.
            shared[block] |= taken.notes["values"][block, 2] > self._window
        for block in blocks(len(firsts), AT_ONCE):
            notes = taken.notes[block][shared[block]]
            first, length = notes["values"][:, 1:].astype(np.int64).T
            yield np.column_stack((notes["document"], first, first + length))

    def _passages(self, taken: Taken) -> Iterator[np.ndarray]:
        """Yield rows (k, 5): documents, ranges of words, and the source and line of what the first stretch equals."""
        firsts = first_equal(taken, 2)
        documents, starts = taken.notes["document"], taken.notes["values"][:, 2]
        for block in _whole_documents(documents):
            first = np.array(firsts[block])
            here, start = np.array(documents[block]), starts[block].astype(np.int64)
            repeats = (documents[first] != here) | (starts[first].astype(np.int64) + self.words <= start)
            first, here, start = first[repeats], here[repeats], start[repeats]
            begins = np.ones(len(here), bool)
            begins[1:] = (here[1:] != here[:-1]) | (start[1:] > start[:-1] + self.words)
            stop = start[np.roll(begins, -1)] + self.words  # the one before the next that begins; the first is one
            yield np.column_stack((here[begins], start[begins], stop, taken.places(documents[first[begins]])))


def without(document: RawDocument, ranges: np.ndarray) -> RawDocument:
    """Return a document without some ranges (k, 2) of its words, and without the lines of which nothing is left."""
    spans = word_spans(document.text)
    cut = np.zeros(len(document.text), bool)
    for first, stop in ranges.tolist():
        after = spans[stop][0] if stop < len(spans) else len(document.text)  # with the white space up to there
        cut[spans[first][0] : after] = True
    lines: list[str | None] = []
    at = 0
    for line in document.text.split("\n"):
        gone = cut[at : at + len(line)]
        if gone.any():
            kept = "".join(character for character, out in zip(line, gone.tolist(), strict=True) if not out)
            lines.append(kept.rstrip() or None)
        else:
            lines.append(line)
        at += len(line) + 1
    return with_lines(document, lines)


@lru_cache(maxsize=_WORDS)
def _hash(word: str) -> int:
    return int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "little")


def _hashes(words: Sequence[str], size: int) -> np.ndarray:
    """Return a hash of each `size` consecutive words (n - size + 1,): a polynomial modulo 2 ** 64, mixed."""
    powers = np.full(len(words), _FACTOR, np.uint64).cumprod()
    inverses = np.full(len(words) - size + 1, pow(_FACTOR, -1, 2**64), np.uint64).cumprod()
    sums = np.concatenate(([np.uint64(0)], (np.fromiter(map(_hash, words), np.uint64, len(words)) * powers).cumsum()))
    hashes = (sums[size:] - sums[:-size]) * inverses
    hashes ^= hashes >> np.uint64(31)
    hashes *= np.uint64(_FACTOR)
    return hashes ^ hashes >> np.uint64(29)


def _sliding_min(values: np.ndarray, width: int) -> np.ndarray:
    """Return the least of each `width` consecutive values (n - width + 1,)."""
    done = 1
    while done < width:
        step = min(done, width - done)
        values = np.minimum(values[:-step], values[step:])
        done += step
    return values


def _whole_documents(documents: np.ndarray) -> Iterator[slice]:
    """Yield slices of about AT_ONCE notes, each with all those of its documents."""
    start = 0
    while start < len(documents):
        last = documents[min(start + AT_ONCE, len(documents)) - 1]
        stop = int(np.searchsorted(documents, last, "right"))
        yield slice(start, stop)
        start = stop

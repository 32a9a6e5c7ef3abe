"""`exact_duplicates` and `near_duplicates`: of documents with the same or nearly the same text, the first is kept."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from ernie.config import check_least
from ernie.data.raw import RawDocument
from ernie.errors import UserError
from ernie.text.scripts import words_in
from pretrain.corpus.clean.base import Comparison, Decision, Rejected, Taken, filters, require
from pretrain.corpus.clean.groups import blocks, equal_keys, first_equal, own_positions, written

_NOT_WORDS = re.compile(r"[\W_]+")
_HASHES = 128  # of a signature: 512 bytes a document, on the disk
_SEED = 52
_PAIRS = 1 << 13  # that are compared at a time, and notes of which keys are made
_FOUND = 0.95  # probability of looking at a pair that is just similar enough


class _Duplicates(Comparison):
    """Compares documents; why one is dropped is the place of an earlier one: source and line."""

    likeness: ClassVar[str] = "that"

    def explain(self, findings: np.ndarray, names: Sequence[str]) -> Rejected:
        """Return in words why a document is dropped."""
        source, line = findings[0].tolist()
        return Rejected("earlier text", f"its text is {self.likeness} of {names[source]}:{line}")


@filters.register("exact_duplicates")
@dataclass(frozen=True)
class ExactDuplicates(_Duplicates):
    """Drops documents with the text of an earlier one, as the filters before have left both.

    Case, white space and punctuation do not count, unless `fold` is false.  Source: CCNet compares so (Wenzek et al.,
    2020).
    """

    fold: bool = True

    def dtype(self) -> tuple[str, int]:
        """Return the type of the numbers in a note, and how many there are: one hash."""
        return "<u8", 1

    def note(self, document: RawDocument) -> np.ndarray:
        """Return the hash of the text."""
        text = (_NOT_WORDS.sub("", document.text.lower()) or document.text) if self.fold else document.text
        return np.frombuffer(hashlib.blake2b(text.encode(), digest_size=8).digest(), "<u8")

    def decide(self, taken: Taken, again: int) -> Decision:
        """Return the documents whose hash an earlier one has, with its place."""
        return written(taken.folder / "found", _found(taken, first_equal(taken, 1)), 3)


@filters.register("near_duplicates")
@dataclass(frozen=True)
class NearDuplicates(_Duplicates):
    """Drops documents that share most of their n-grams of words with an earlier one.

    `similarity` is the Jaccard coefficient of the sets of `words`-grams, estimated by MinHash (Broder, 1997) with 128
    hashes.  Locality-sensitive hashing (Leskovec et al., 2020, section 3.4) finds the pairs to look at.  A document is
    also dropped if it resembles one that was dropped for the same reason.  FineWeb uses 5-grams and 0.75 (Penedo et
    al., 2024, section 3.4).  In scripts without spaces, each letter counts as a word.
    """

    likeness = "nearly that"
    similarity: float = 0.75
    words: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        require("rensa", "near_duplicates")
        check_least(self, words=1)
        if not 0.3 <= self.similarity <= 1:
            raise UserError(f"similarity: expected a number from 0.3 to 1, found {self.similarity}")

    def dtype(self) -> tuple[str, int]:
        """Return the type of the numbers in a note, and how many there are: the hashes of a signature."""
        return "<u4", _HASHES

    def note(self, document: RawDocument) -> np.ndarray:
        """Return the signature of the text."""
        from rensa import RMinHash

        words = words_in(_NOT_WORDS.sub(" ", document.text.lower())) or [document.text]
        grams = {" ".join(words[i : i + self.words]) for i in range(max(1, len(words) - self.words + 1))}
        signature = RMinHash(num_perm=_HASHES, seed=_SEED)
        signature.update(sorted(grams))
        return np.array(signature.digest(), "<u4")

    def decide(self, taken: Taken, again: int) -> Decision:
        """Return the documents whose signature is like that of an earlier one with the same hashes in a band."""
        earliest = own_positions(taken.folder / "earliest", taken.size)
        for start in range(0, _HASHES - self._band + 1, self._band):
            for pairs in self._pairs(taken, start):
                pairs = pairs[earliest[pairs[:, 0]] == pairs[:, 0]]
                both = (taken.at(column)["values"] for column in pairs.T)
                later, earlier = pairs[np.equal(*both).mean(axis=1) >= self.similarity].T
                later, first = np.unique(later, return_index=True)
                earliest[later] = earlier[first]
        return written(taken.folder / "found", _found(taken, earliest), 3)

    def _pairs(self, taken: Taken, start: int) -> Iterator[np.ndarray]:
        """Yield pairs (k, 2) of a note and an earlier one with the same hashes in the band that begins at `start`."""
        keyed = (
            np.column_stack((_key(notes["values"][:, start : start + self._band]), rows.astype(np.uint64)))
            for rows, notes in taken.blocks(blocks(taken.size, _PAIRS))
        )
        for later, before, first in equal_keys(taken.folder, keyed, taken.size):
            both = np.column_stack((later, first)), np.column_stack((later, before))
            pairs = np.unique(np.concatenate(both), axis=0)
            yield from (pairs[block] for block in blocks(len(pairs), _PAIRS))

    @cached_property
    def _band(self) -> int:
        """The height of bands: the largest at which a pair that is just similar enough is found often enough."""
        probable = (h for h in range(1, 33) if 1 - (1 - self.similarity**h) ** (_HASHES // h) >= _FOUND)
        return max(probable)


def _found(taken: Taken, earliest: np.ndarray) -> Iterator[np.ndarray]:
    """Yield rows (k, 3) of documents and the places of earlier ones, given the earliest note (n,) like each, or it."""
    for block in blocks(taken.size):
        earlier = np.array(earliest[block])
        later = np.flatnonzero(earlier != np.arange(block.start, block.stop))
        documents = taken.at(block.start + later)["document"]
        yield np.column_stack((documents, taken.places(taken.at(earlier[later])["document"])))


def _key(hashes: np.ndarray) -> np.ndarray:
    """Return a number (n,) for each row of hashes (n, h)."""
    keys = np.zeros(len(hashes), np.uint64)
    for column in hashes.T.astype(np.uint64):
        keys = (keys ^ column) * np.uint64(0x9E3779B97F4A7C15)
        keys ^= keys >> np.uint64(29)
    return keys

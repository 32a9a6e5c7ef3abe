"""The base of segmenters, which mark words, phrases and entities in sequences of words and are named in YAML."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import repeat
from typing import Any, ClassVar, overload

import numpy as np

from ernie.errors import UserError, nearest
from ernie.registry import Registry


class Kind(IntEnum):
    """The kind of a span.  Words are spans only in scripts without spaces: several Chinese characters."""

    WORD = 0
    PHRASE = 1
    ENTITY = 2


class Words(Sequence[str]):
    """A sequence of words stored as indices into the distinct ones, so that per-word work is done once per word.

    `distinct` (g) are the distinct words, `numbers` (m,) the index of the word at each position.
    """

    def __init__(self, distinct: Sequence[str], numbers: np.ndarray):
        self.distinct = distinct
        self.numbers = numbers

    @classmethod
    def of(cls, words: Sequence[str]) -> Words:
        """Convert any sequence of words."""
        if isinstance(words, Words):
            return words
        numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}
        return cls(list(numbers), np.fromiter(map(numbers.__getitem__, words), np.int64, len(words)))

    def map(self, function: Callable[[str], int]) -> np.ndarray:
        """Return the value of `function` for the word at each position, (m,) int64."""
        return np.fromiter(map(function, self.distinct), np.int64, len(self.distinct))[self.numbers]

    def look_up(self, values: Mapping[str, int], default: int) -> np.ndarray:
        """Return the value of the word at each position, (m,) int64; `default` for words without one."""
        per_word = map(values.get, self.distinct, repeat(default))
        return np.fromiter(per_word, np.int64, len(self.distinct))[self.numbers]

    def counts(self, where: np.ndarray | None = None) -> Iterator[tuple[str, int]]:
        """Yield each word with its count, over the positions where `where` (m,) is true, or over all."""
        numbers = self.numbers if where is None else self.numbers[where]
        counts = np.bincount(numbers, minlength=len(self.distinct))
        return ((self.distinct[i], int(counts[i])) for i in np.flatnonzero(counts).tolist())

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[str]:
        return map(self.distinct.__getitem__, self.numbers.tolist())

    @overload
    def __getitem__(self, i: int) -> str: ...
    @overload
    def __getitem__(self, i: slice) -> list[str]: ...
    def __getitem__(self, i: int | slice) -> str | list[str]:
        if isinstance(i, slice):
            return [self.distinct[number] for number in self.numbers[i].tolist()]
        return self.distinct[self.numbers[i]]


Batch = tuple[Sequence[str], np.ndarray]  # words, starts: see Segmenter.spans


class Segmenter:
    """Marks spans of words; the base of frozen dataclasses whose fields are their YAML keys.

    Segmenters are pickled and sent to worker processes.  The spans of a sentence must not depend on the other sentences
    of the batch: whatever a segmenter needs to know about the whole text, it learns in `fit`.
    """

    needs_fit: ClassVar[bool] = False
    variant_key: ClassVar[str] = "kind"

    @property
    def variant_name(self) -> str | None:
        """The name in YAML, see ernie.config; None for an unregistered segmenter."""
        return segmenters.name_of(type(self))

    @classmethod
    def variant(cls, key: str, given: Mapping[str, Any]) -> tuple[type[Segmenter], set[str]]:
        """Return the registered class that `kind` names in a YAML mapping and the keys consumed; see ernie.config."""
        if cls.variant_key not in given:
            raise UserError(f"{cls.variant_key}: this key is required.{nearest('', segmenters)}")
        return segmenters[str(given[cls.variant_key])], {cls.variant_key}

    @property
    def label(self) -> str:
        """The name under which a corpus's report counts its spans; "" if it does not."""
        return ""

    def for_language(self, language: str) -> Segmenter:
        """Return the segmenter for text of this language ("en", "zh", "ja", "th"), called before `fit`."""
        return self

    def fit(self, batches: Iterable[Batch]) -> Segmenter:
        """Return a segmenter fitted to a sample of the text."""
        return self

    def spans(self, words: Sequence[str], starts: np.ndarray) -> np.ndarray:
        """Return the spans of many sentences at once, as (k, 3) int64: first word, past-last word, Kind.

        `words` are the words (and punctuation marks) of all sentences, concatenated; `starts` (s,) are the indices of
        each sentence's first word.  Spans are sorted, cross no sentence boundary, and spans of one kind are disjoint.
        """
        raise NotImplementedError


class TextSegmenter(Segmenter):
    """Marks spans of the characters of a text, in languages whose words do not stand apart.

    What it marks does not depend on how a tokenizer splits the text.  It has no `spans` of words.
    """

    def spans(self, words: Sequence[str], starts: np.ndarray) -> np.ndarray:
        return no_spans()

    def mark(self, text: str) -> np.ndarray:
        """Return the spans of a text as (k, 3) int64: first character, past-last character, Kind.

        Spans of one kind are disjoint and sorted, and no span crosses the end of a line.
        """
        raise NotImplementedError


segmenters: Registry[type[Segmenter]] = Registry("segmenter", "ernie.segmenters")


def combine(
    chosen: Sequence[Segmenter], words: Sequence[str], starts: np.ndarray, marked: Counter[str] | None = None
) -> np.ndarray:
    """Merge the spans (k, 3) of several segmenters; if spans of one kind overlap, the earlier segmenter wins.

    `marked` gets the number of spans of each segmenter with a label.
    """
    words = Words.of(words)
    taken = np.zeros((len(Kind), len(words)), dtype=bool)
    kept = []
    for segmenter in chosen:
        spans = segmenter.spans(words, starts)
        if marked is not None and segmenter.label:
            marked[segmenter.label] += len(spans)
        for kind in Kind:
            own = spans[spans[:, 2] == kind]
            filled = np.concatenate(([0], np.cumsum(taken[kind])))
            own = own[filled[own[:, 1]] == filled[own[:, 0]]]
            taken[kind] |= covered(own[:, 0], own[:, 1], len(words))
            kept.append(own)
    return in_order(np.concatenate(kept)) if kept else no_spans()


def no_spans() -> np.ndarray:
    return np.empty((0, 3), dtype=np.int64)


def make_spans(firsts: np.ndarray, stops: np.ndarray, kind: Kind) -> np.ndarray:
    """Build spans (k, 3) of one kind from their starts (k,) and ends (k,)."""
    return np.column_stack((firsts, stops, np.full(len(firsts), kind))).astype(np.int64)


def in_order(spans: np.ndarray) -> np.ndarray:
    """Return the spans sorted by first word, then last word, then kind."""
    return spans[np.lexsort((spans[:, 2], spans[:, 1], spans[:, 0]))]


def covered(firsts: np.ndarray, stops: np.ndarray, size: int) -> np.ndarray:
    """Return which of `size` positions lie in one of the intervals [first, stop), (size,) bool."""
    steps = np.bincount(firsts, minlength=size + 1) - np.bincount(stops, minlength=size + 1)
    return np.cumsum(steps[:size]) > 0


def disjoint(firsts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Select disjoint intervals greedily, (k,) bool: each kept interval drops those that begin inside it.

    Intervals are sorted by start.
    """
    keep = np.zeros(len(firsts), dtype=bool)
    end = 0
    for i, (first, stop) in enumerate(zip(firsts.tolist(), stops.tolist(), strict=True)):
        if first >= end:
            keep[i] = True
            end = stop
    return keep

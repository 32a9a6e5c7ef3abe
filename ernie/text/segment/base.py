"""What a segmenter is: it marks words, phrases and entities in runs of words, and is found by its name in a YAML."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from itertools import repeat
from typing import Any, ClassVar, overload

import numpy as np

from ernie.errors import UserError, nearest
from ernie.registry import Registry


class Kind(IntEnum):
    """What a span is.  A word is a span only where a script writes none: several Chinese characters."""

    WORD = 0
    PHRASE = 1
    ENTITY = 2


class Words(Sequence[str]):
    """Words as numbers into the distinct ones, so that what is to know of a word is worked out once.

    `distinct` (g) are the different words, `numbers` (m,) tells which of them stands at each place.
    """

    def __init__(self, distinct: Sequence[str], numbers: np.ndarray):
        self.distinct = distinct
        self.numbers = numbers

    @classmethod
    def of(cls, words: Sequence[str]) -> Words:
        """Any words in this form."""
        if isinstance(words, Words):
            return words
        numbers = {word: number for number, word in enumerate(dict.fromkeys(words))}
        return cls(list(numbers), np.fromiter(map(numbers.__getitem__, words), np.int64, len(words)))

    def map(self, function: Callable[[str], int]) -> np.ndarray:
        """The value of `function` for the word at each place, (m,) int64."""
        return np.fromiter(map(function, self.distinct), np.int64, len(self.distinct))[self.numbers]

    def look_up(self, values: Mapping[str, int], default: int) -> np.ndarray:
        """The value of the word at each place, (m,) int64; `default` where it has none."""
        found = map(values.get, self.distinct, repeat(default))
        return np.fromiter(found, np.int64, len(self.distinct))[self.numbers]

    def counts(self, where: np.ndarray | None = None) -> Iterator[tuple[str, int]]:
        """Each word that stands at one of the places where `where` (m,) holds, and how often."""
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
    """Marks spans of words; a base for frozen dataclasses whose fields are their YAML keys.

    Segmenters are pickled and sent to worker processes.  What a segmenter finds in a sentence must not depend on the
    sentences beside it in the batch: what it needs to know of the text at large, it learns in `fit`.
    """

    needs_fit: ClassVar[bool] = False
    variant_key: ClassVar[str] = "kind"

    @property
    def variant_name(self) -> str | None:
        """The name in a YAML, see ernie.config; None for a segmenter that is not registered."""
        return segmenters.name_of(type(self))

    @classmethod
    def variant(cls, key: str, given: Mapping[str, Any]) -> tuple[type[Segmenter], set[str]]:
        """The registered class that `kind` names in a YAML mapping, and the keys this used up; see ernie.config."""
        if cls.variant_key not in given:
            raise UserError(f"{cls.variant_key}: this key is required.{nearest('', segmenters)}")
        return segmenters[str(given[cls.variant_key])], {cls.variant_key}

    def fit(self, batches: Iterable[Batch]) -> Segmenter:
        """A segmenter that has learnt from a sample of the text."""
        return self

    def spans(self, words: Sequence[str], starts: np.ndarray) -> np.ndarray:
        """The spans in many sentences at once, as (k, 3) int64: first word, past-last word, Kind.

        `words` are the sentences' words (and punctuation marks), one sentence after the other; `starts` (s,) are the
        places of each sentence's first word.  Spans are sorted, cross no sentence, and those of a kind are disjoint.
        """
        raise NotImplementedError


segmenters: Registry[type[Segmenter]] = Registry("segmenter", "ernie.segmenters")


def combine(chosen: Sequence[Segmenter], words: Sequence[str], starts: np.ndarray) -> np.ndarray:
    """The spans (k, 3) of several segmenters; of spans of one kind that overlap, those of the earlier one stay."""
    words = Words.of(words)
    taken = np.zeros((len(Kind), len(words)), dtype=bool)
    kept = []
    for segmenter in chosen:
        spans = segmenter.spans(words, starts)
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
    """Spans (k, 3) of one kind from where they begin (k,) and end (k,)."""
    return np.column_stack((firsts, stops, np.full(len(firsts), kind))).astype(np.int64)


def in_order(spans: np.ndarray) -> np.ndarray:
    """The spans sorted by their first word, then their last, then their kind."""
    return spans[np.lexsort((spans[:, 2], spans[:, 1], spans[:, 0]))]


def covered(firsts: np.ndarray, stops: np.ndarray, size: int) -> np.ndarray:
    """Which of `size` places lie in one of the stretches [first, stop), (size,) bool."""
    steps = np.bincount(firsts, minlength=size + 1) - np.bincount(stops, minlength=size + 1)
    return np.cumsum(steps[:size]) > 0


def disjoint(firsts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """Which of the stretches (k,), given by first place, stay when each in turn drops those that begin inside it."""
    keep = np.zeros(len(firsts), dtype=bool)
    end = 0
    for i, (first, stop) in enumerate(zip(firsts.tolist(), stops.tolist(), strict=True)):
        if first >= end:
            keep[i] = True
            end = stop
    return keep

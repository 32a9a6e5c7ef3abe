"""`chinese_names`: names in Chinese text that give themselves away by a suffix, a title, a mark, or by being known.

Persons are found where a title stands beside them or in a list of names; and elsewhere those that the sample so shows
several times.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ernie.text.scripts import HAN
from ernie.text.segment import chinese_lists as lists
from ernie.text.segment.base import Batch, Kind, Segmenter, Words, disjoint, make_spans, segmenters
from ernie.text.segment.ngrams import BREAK, Text
from ernie.text.segment.phrases import Phrases


def _any(words: Sequence[str]) -> str:
    """A pattern for any of the words, the longest first."""
    return "|".join(sorted(words, key=len, reverse=True))


_INSIDE = rf"(?:[{HAN}](?<![{lists.OUTSIDE}]))"
_PLACE = re.compile(rf"(?:{_any(lists.PLACES)})(?:(?:{_any(lists.PLACE_SUFFIXES)})(?![场民区长级])|(?![人队货史军]))")
_DISTRICT = re.compile(rf"(?:{_any(lists.DISTRICT_SUFFIXES)})(?![场民价面值容委长级办政内里])")
_ORGANIZATION = re.compile(_any(lists.ORGANIZATION_SUFFIXES))
_WORK = re.compile(r"(?<=《)[^《》\n]{1,25}(?=》)")
_FOREIGN = re.compile(rf"[{lists.FOREIGN}]{{1,8}}(?:[·•][{lists.FOREIGN}]{{1,8}})+")
_TITLE = re.compile(_any(lists.TITLES))
_PERSON = re.compile(rf"[{lists.SURNAMES}]{_INSIDE}{{1,2}}")
_PERSON_BEFORE = re.compile(rf"(?<![{HAN}])[{lists.SURNAMES}]{_INSIDE}{{1,2}}\Z|[{lists.SURNAMES}]{_INSIDE}{{2}}\Z")
_LISTED = re.compile(rf"(?<=[、，。（：])[{lists.SURNAMES}]{_INSIDE}{{1,2}}(?=[、（])")
_STEM = re.compile(rf"{_INSIDE}+\Z")

_SHORTEST_DISTRICT, _LONGEST_DISTRICT = 2, 4  # characters before the suffix
_SHORTEST_ORGANIZATION, _LONGEST_ORGANIZATION = 2, 10

_LONGEST_PERSON = 3
_SEEN = 2  # times beside a title or in a list before a name of three characters is known everywhere; of two: once more

_GAP = ord("\n")  # between sentences
_UNIT = ord("\0")  # stands for a word of several characters


@segmenters.register("chinese_names")
@dataclass(frozen=True)
class ChineseNames(Segmenter):
    """Entities: well-known places, places and organizations by their suffix, persons by a title beside them, in lists
    and as known from the sample, foreign names with a dot between their parts, and what stands in 《》.
    """

    needs_fit: ClassVar[bool] = True

    def fit(self, batches: Iterable[Batch]) -> KnownNames:
        """Learn the names of persons."""
        counts: Counter[str] = Counter()
        for words, starts in batches:
            text = _as_text(words, starts)
            counts.update(text[start:end] for start, end in set(_persons(text)))
        names = [name for name, count in counts.items() if count >= _SEEN + (len(name) == 2)]
        numbers = {letter: number for number, letter in enumerate(sorted(set("".join(names))), 1)}
        grams = ([numbers[letter] for letter in name] for name in names)
        return KnownNames(numbers, Phrases.of(grams, _LONGEST_PERSON))


@dataclass(frozen=True)
class KnownNames(Segmenter):
    """What `chinese_names` has learnt: names of persons, of characters by their numbers."""

    characters: dict[str, int]
    persons: Phrases

    def spans(self, words: Sequence[str], starts: np.ndarray) -> np.ndarray:
        words = Words.of(words)
        text = _as_text(words, starts)
        spans = np.array(list(_names(text)), np.int64).reshape(-1, 2)
        # A gap stands before each sentence up to that of the name.
        spans -= np.searchsorted(starts + np.arange(len(starts)), spans[:, :1], side="right")
        known = self.persons.find(Text(words.look_up(self.characters, BREAK), starts))
        spans = np.concatenate((spans, np.column_stack(known)))
        spans = spans[np.lexsort((-spans[:, 1], spans[:, 0]))]  # of those that begin together the longest first
        kept = spans[disjoint(spans[:, 0], spans[:, 1])]
        return make_spans(kept[:, 0], kept[:, 1], Kind.ENTITY)


def _as_text(words: Sequence[str], starts: np.ndarray) -> str:
    """A character a word, and one more before each sentence."""
    codes = Words.of(words).map(lambda word: ord(word) if len(word) == 1 else _UNIT)
    return np.insert(codes, starts, _GAP).astype("<u4").tobytes().decode("utf-32-le")


def _names(text: str) -> Iterator[tuple[int, int]]:
    """Names as [start, end) of the text; some lie in one another."""
    for pattern in (_PLACE, _WORK, _FOREIGN):
        yield from (match.span() for match in pattern.finditer(text))
    for match in _DISTRICT.finditer(text):
        start = _stem(text, match.start(), _LONGEST_DISTRICT)
        if match.start() - start >= _SHORTEST_DISTRICT:
            yield start, match.end()
    for match in _ORGANIZATION.finditer(text):
        start = _stem(text, match.start(), _LONGEST_ORGANIZATION)
        if match.start() - start >= _SHORTEST_ORGANIZATION:
            yield start, match.end()
    yield from _persons(text)


def _persons(text: str) -> Iterator[tuple[int, int]]:
    yield from (match.span() for match in _LISTED.finditer(text))
    for match in _TITLE.finditer(text):
        before = _PERSON_BEFORE.search(text, max(0, match.start() - _LONGEST_PERSON), match.start())
        if before:
            yield before.span()
        behind = _PERSON.match(text, match.end())
        if behind:
            yield behind.span()


def _stem(text: str, end: int, longest: int) -> int:
    """Where what a name may be made of begins before `end`; `end` itself when that is longer than a name."""
    found = _STEM.search(text, max(0, end - longest - 1), end)
    return found.start() if found and end - found.start() <= longest else end

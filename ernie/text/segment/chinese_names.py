"""`chinese_names`: Chinese names, recognized by a suffix, a title, a punctuation mark, or a list of known names.

Persons are found next to a title or in an enumeration of names; a name that the sample shows there several times is
found everywhere.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ernie.text.scripts import HAN, TRANSLITERATION
from ernie.text.segment import chinese_lists as lists
from ernie.text.segment.base import Batch, Kind, Segmenter, Words, disjoint, make_spans, segmenters
from ernie.text.segment.ngrams import BREAK, Text
from ernie.text.segment.phrases import Phrases


def _any(words: Sequence[str]) -> str:
    """Return a pattern that matches any of the words, the longest first."""
    return "|".join(sorted(words, key=len, reverse=True))


_INSIDE = rf"(?:[{HAN}](?<![{lists.OUTSIDE}]))"
_PLACE = re.compile(rf"(?:{_any(lists.PLACES)})(?:(?:{_any(lists.PLACE_SUFFIXES)})(?![场民区长级])|(?![人队货史军]))")
_DISTRICT = re.compile(rf"(?:{_any(lists.DISTRICT_SUFFIXES)})(?![场民价面值容委长级办政内里])")
_ORGANIZATION = re.compile(_any(lists.ORGANIZATION_SUFFIXES))
_WORK = re.compile(r"(?<=《)[^《》\n]{1,25}(?=》)")
_FOREIGN = re.compile(rf"[{TRANSLITERATION}]{{1,8}}(?:[·•][{TRANSLITERATION}]{{1,8}})+")
_TITLE = re.compile(_any(lists.TITLES))
_PERSON = re.compile(rf"[{lists.SURNAMES}]{_INSIDE}{{1,2}}")
_PERSON_BEFORE = re.compile(rf"(?<![{HAN}])[{lists.SURNAMES}]{_INSIDE}{{1,2}}\Z|[{lists.SURNAMES}]{_INSIDE}{{2}}\Z")
_LISTED = re.compile(rf"(?<=[、，。（：])[{lists.SURNAMES}]{_INSIDE}{{1,2}}(?=[、（])")
_STEM = re.compile(rf"{_INSIDE}+\Z")

_SHORTEST_DISTRICT, _LONGEST_DISTRICT = 2, 4  # characters before the suffix
_SHORTEST_ORGANIZATION, _LONGEST_ORGANIZATION = 2, 10

_LONGEST_PERSON = 3
# Occurrences next to a title or in a list before a name of three characters is found everywhere; one of two characters
# needs one more.
_MIN_COUNT = 2

_GAP = ord("\n")  # between sentences
_UNIT = ord("\0")  # stands for a word of several characters


@segmenters.register("chinese_names")
@dataclass(frozen=True)
class ChineseNames(Segmenter):
    """Entities: well-known places, places and organizations by suffix, persons, foreign names with a dot between their
    parts, and titles in 《》.  Persons are found next to a title, in lists, and as known from the sample.
    """

    needs_fit: ClassVar[bool] = True

    def fit(self, batches: Iterable[Batch]) -> KnownNames:
        """Learn the names of persons."""
        counts: Counter[str] = Counter()
        for words, starts in batches:
            text = _as_text(words, starts)
            counts.update(text[start:end] for start, end in set(_persons(text)))
        names = [name for name, count in counts.items() if count >= _MIN_COUNT + (len(name) == 2)]
        numbers = {letter: number for number, letter in enumerate(sorted(set("".join(names))), 1)}
        grams = ([numbers[letter] for letter in name] for name in names)
        return KnownNames(numbers, Phrases.of(grams, _LONGEST_PERSON))


@dataclass(frozen=True)
class KnownNames(Segmenter):
    """The fitted `chinese_names`: the numbers of characters, and names of persons made of these numbers."""

    characters: dict[str, int]
    persons: Phrases

    def spans(self, words: Sequence[str], starts: np.ndarray) -> np.ndarray:
        words = Words.of(words)
        text = _as_text(words, starts)
        spans = np.array(list(_names(text)), np.int64).reshape(-1, 2)
        # Subtract the gaps before the name: one per sentence up to its own.
        spans -= np.searchsorted(starts + np.arange(len(starts)), spans[:, :1], side="right")
        symbols = words.map(lambda word: self.characters.get(_simplified(word), BREAK))
        known = self.persons.find(Text(symbols, starts))
        spans = np.concatenate((spans, np.column_stack(known)))
        spans = spans[np.lexsort((-spans[:, 1], spans[:, 0]))]  # the longest first among spans with the same start
        kept = spans[disjoint(spans[:, 0], spans[:, 1])]
        return make_spans(kept[:, 0], kept[:, 1], Kind.ENTITY)


def _as_text(words: Sequence[str], starts: np.ndarray) -> str:
    """Return a text with one character per word, simplified as far as lists have it, and a gap before each sentence."""
    codes = Words.of(words).map(lambda word: ord(_simplified(word)) if len(word) == 1 else _UNIT)
    return np.insert(codes, starts, _GAP).astype("<u4").tobytes().decode("utf-32-le")


def _simplified(letter: str) -> str:
    return lists.SIMPLIFIED.get(letter, letter)


def _names(text: str) -> Iterator[tuple[int, int]]:
    """Yield names as [start, end) of the text; they may be nested."""
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
        after = _PERSON.match(text, match.end())
        if after:
            yield after.span()


def _stem(text: str, end: int, longest: int) -> int:
    """Return the start of the run of possible name characters before `end`; `end` itself if the run is too long."""
    match = _STEM.search(text, max(0, end - longest - 1), end)
    return match.start() if match and end - match.start() <= longest else end

"""`chinese_names`: names in Chinese text that give themselves away by a suffix, a title, a mark, or by being known.

No statistics and no model: persons are found only where a title stands beside them or in a list of names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ernie.text.segment import chinese_lists as lists
from ernie.text.segment.base import Kind, Segmenter, Words, disjoint, segmenters


def _any(words: Sequence[str]) -> str:
    """A pattern for any of the words, the longest first."""
    return "|".join(sorted(words, key=len, reverse=True))


_HAN = "\u3400-\u4dbf\u4e00-\u9fff"
_INSIDE = rf"(?:[{_HAN}](?<![{lists.OUTSIDE}]))"
_PLACE = re.compile(rf"(?:{_any(lists.PLACES)})(?:(?:{_any(lists.PLACE_SUFFIXES)})(?![场民区长级])|(?![人队货史军]))")
_DISTRICT = re.compile(rf"(?:{_any(lists.DISTRICT_SUFFIXES)})(?![场民价面值容委长级办政内里])")
_ORGANIZATION = re.compile(_any(lists.ORGANIZATION_SUFFIXES))
_WORK = re.compile(r"(?<=《)[^《》\n]{1,25}(?=》)")
_FOREIGN = re.compile(rf"[{lists.FOREIGN}]{{1,8}}(?:[·•][{lists.FOREIGN}]{{1,8}})+")
_TITLE = re.compile(_any(lists.TITLES))
_PERSON = re.compile(rf"[{lists.SURNAMES}]{_INSIDE}{{1,2}}")
_PERSON_BEFORE = re.compile(rf"(?<![{_HAN}])[{lists.SURNAMES}]{_INSIDE}{{1,2}}\Z|[{lists.SURNAMES}]{_INSIDE}{{2}}\Z")
_LISTED = re.compile(rf"(?<=[、，。（：])[{lists.SURNAMES}]{_INSIDE}{{1,2}}(?=[、（])")
_STEM = re.compile(rf"{_INSIDE}+\Z")

_SHORTEST_DISTRICT, _LONGEST_DISTRICT = 2, 4  # characters before the suffix
_SHORTEST_ORGANIZATION, _LONGEST_ORGANIZATION = 2, 10

_GAP = ord("\n")  # between sentences
_UNIT = ord("\0")  # stands for a word of several characters


@segmenters.register("chinese_names")
@dataclass(frozen=True)
class ChineseNames(Segmenter):
    """Entities: well-known places, places and organizations by their suffix, persons beside a title or in a list,
    foreign names with a dot between their parts, and what stands in 《》.
    """

    def spans(self, words: Sequence[str], starts: np.ndarray) -> np.ndarray:
        codes = Words.of(words).map(lambda word: ord(word) if len(word) == 1 else _UNIT)
        text = np.insert(codes, starts, _GAP).astype("<u4").tobytes().decode("utf-32-le")
        found = np.array(sorted(set(_names(text)), key=lambda span: (span[0], -span[1])), np.int64).reshape(-1, 2)
        found = found[disjoint(found[:, 0], found[:, 1])]
        # A gap stands before each sentence up to that of the name.
        gaps = np.searchsorted(starts + np.arange(len(starts)), found[:, 0], side="right")
        return np.column_stack((found - gaps[:, None], np.full(len(found), Kind.ENTITY)))


def _names(text: str) -> Iterator[tuple[int, int]]:
    """Names as [start, end) of the text; some lie in one another."""
    for pattern in (_PLACE, _WORK, _LISTED, _FOREIGN):
        yield from (match.span() for match in pattern.finditer(text))
    for match in _DISTRICT.finditer(text):
        start = _stem(text, match.start(), _LONGEST_DISTRICT)
        if match.start() - start >= _SHORTEST_DISTRICT:
            yield start, match.end()
    for match in _ORGANIZATION.finditer(text):
        start = _stem(text, match.start(), _LONGEST_ORGANIZATION)
        if match.start() - start >= _SHORTEST_ORGANIZATION:
            yield start, match.end()
    for match in _TITLE.finditer(text):
        before = _PERSON_BEFORE.search(text, max(0, match.start() - 3), match.start())
        if before:
            yield before.span()
        behind = _PERSON.match(text, match.end())
        if behind:
            yield behind.span()


def _stem(text: str, end: int, longest: int) -> int:
    """Where what a name may be made of begins before `end`; `end` itself when that is longer than a name."""
    found = _STEM.search(text, max(0, end - longest - 1), end)
    return found.start() if found and end - found.start() <= longest else end

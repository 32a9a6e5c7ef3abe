"""Segmenters of languages without spaces, by a package that finds words and their parts of speech."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from importlib.util import find_spec
from itertools import groupby
from typing import ClassVar, NamedTuple

import numpy as np

from ernie.errors import UserError
from ernie.text.segment.base import Kind, TextSegmenter, in_order


class Part(Enum):
    """What a word is to a segmenter: a name, a noun, anything else, or no word at all."""

    NAME = 0
    NOUN = 1
    OTHER = 2
    MARK = 3


class Word(NamedTuple):
    """A word of a text: its first and past-last character, and what it is."""

    start: int
    stop: int
    part: Part


@dataclass(frozen=True)
class Tagged(TextSegmenter):
    """Words by one of the `packages`; with `entities` also names, with `phrases` also compounds of nouns."""

    packages: ClassVar[tuple[str, ...]]
    entities: bool = True
    phrases: bool = True

    def __post_init__(self) -> None:
        if not self.has_packages():
            raise UserError(
                f"the segmenter '{self.variant_name}' needs packages: pip install 'ernie-continual[languages]'"
            )

    @classmethod
    def has_packages(cls) -> bool:
        """Whether the packages are installed."""
        return all(map(find_spec, cls.packages))

    def mark(self, text: str) -> np.ndarray:
        """Return the words, phrases and entities of a text."""
        return spans_of(self.words(text), self.phrases, self.entities)

    def words(self, text: str) -> Iterator[Word]:
        """Yield the words of a text, in order.  What the packages need is loaded at first use."""
        raise NotImplementedError


def spans_of(all_words: Iterable[Word], phrases: bool, entities: bool) -> np.ndarray:
    """Return the spans (k, 3) of words: words, runs of names as entities, runs of several nouns or names as phrases."""
    words = list(all_words)
    found = [(word.start, word.stop, Kind.WORD) for word in words if word.part is not Part.MARK]
    if entities:
        found += [(run[0].start, run[-1].stop, Kind.ENTITY) for run in _runs(words, {Part.NAME})]
    if phrases:
        runs = _runs(words, {Part.NAME, Part.NOUN})
        found += [(run[0].start, run[-1].stop, Kind.PHRASE) for run in runs if len(run) > 1]
    return in_order(np.array(found, np.int64).reshape(-1, 3))


def _runs(words: list[Word], parts: set[Part]) -> Iterator[list[Word]]:
    """Yield runs of words of these parts that follow one another without a gap."""
    stop, number = -1, 0
    keyed = []
    for word in words:
        number += word.start != stop
        stop = word.stop
        keyed.append((word.part in parts, number, word))
    for (wanted, _), run in groupby(keyed, key=lambda each: each[:2]):
        if wanted:
            yield [word for _, _, word in run]

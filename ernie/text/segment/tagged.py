"""Words of a line with their parts of speech, as the spans that a segmenter marks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import groupby
from typing import NamedTuple

import numpy as np

from ernie.text.segment.base import Kind, in_order


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

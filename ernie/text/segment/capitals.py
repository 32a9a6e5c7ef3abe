"""`capitals`: English names found by their capital letters.

Legend: m words (and punctuation marks) of a batch, s sentences.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import numpy as np

from ernie.text.segment import stopwords
from ernie.text.segment.base import Batch, Kind, Segmenter, Words, make_spans, segmenters

# The properties of a word that matter for names; one bit each.
_CAPITAL, _INITIAL, _ABBREVIATION, _LINK, _DOT, _JOINT, _APOSTROPHE, _LETTERS = (1 << i for i in range(8))

_LINKS = frozenset("of the de la du del della di da von van der den bin ibn".split())
_MARKS = {".": _DOT, "-": _JOINT, "&": _JOINT, "'": _APOSTROPHE, "’": _APOSTROPHE}
_ABBREVIATED = frozenset("St Mt Ft".split())
# Words that, like stop words, are no names by themselves even if capitalized.
_NO_NAMES = stopwords.ENGLISH | frozenset(
    "january february march april june july august september october november december monday tuesday wednesday "
    "thursday friday saturday sunday mr mrs ms dr".split()
)
_HEADLINE = 0.7  # a sentence with at least this share of capitalized words is a headline
_HEADLINE_WORDS = 3  # minimum length of a headline
_MIN_COUNT = 2  # occurrences in the sample before a word's usual case counts as known


@segmenters.register("capitals")
@dataclass(frozen=True)
class Capitals(Segmenter):
    """Entities: runs of capitalized words, including "of", "de", initials, hyphens and "&" between them.

    At the start of a sentence and in headlines any word may be capitalized; there, a word counts only if the rest of
    the sample does not usually write it in lower case.
    """

    needs_fit: ClassVar[bool] = True

    def fit(self, batches: Iterable[Batch]) -> KnownCapitals:
        """Learn which words are usually written in lower case."""
        upper: Counter[str] = Counter()
        lower: Counter[str] = Counter()
        for words, starts in batches:
            shapes = _shapes(words)
            informative = ~_any_capital(shapes, starts)
            for word, count in Words.of(words).counts(informative & (shapes & _CAPITAL > 0)):
                upper[word.lower()] += count
            lower.update({word: n for word, n in Words.of(words).counts(shapes & _LETTERS > 0) if word.islower()})
        return KnownCapitals(frozenset(word for word, n in lower.items() if n >= _MIN_COUNT and n > upper[word]))


@dataclass(frozen=True)
class KnownCapitals(Segmenter):
    """The fitted `capitals`: `lower` has the words usually written in lower case."""

    lower: frozenset[str]

    def spans(self, words: Sequence[str], starts: np.ndarray) -> np.ndarray:
        words = Words.of(words)
        shapes = _shapes(words)
        named = shapes & (_CAPITAL | _INITIAL) > 0
        named &= ~(_any_capital(shapes, starts) & words.map(lambda word: word.lower() in self.lower) > 0)
        firsts, stops = _runs(named | _between(shapes, named, starts), starts)
        # A single initial is the article A or a label; two make a name: U.S.
        weights = np.concatenate(([0], np.cumsum(2 * (shapes & _CAPITAL > 0) + (shapes & _INITIAL > 0))))
        keep = weights[stops] - weights[firsts] >= 2
        return make_spans(firsts[keep], stops[keep], Kind.ENTITY)


@lru_cache(maxsize=1 << 18)
def _shape(word: str) -> int:
    """Return the property bits of a word."""
    if not word[:1].isalpha():
        return _MARKS.get(word, 0)
    bits = _LETTERS | _LINK * (word in _LINKS)
    if not word[0].isupper() or word == "I" or (word.lower() in _NO_NAMES and not word.isupper()):
        return bits
    if len(word) == 1:
        return bits | _INITIAL
    return bits | _CAPITAL | _ABBREVIATION * (word in _ABBREVIATED)


def _shapes(words: Sequence[str]) -> np.ndarray:
    """Return the property bits of each word, (m,)."""
    return Words.of(words).map(_shape)


def _any_capital(shapes: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return where a capital is uninformative, (m,) bool: in headlines, and in the first word of a sentence."""
    letters = np.concatenate(([0], np.cumsum(shapes & _LETTERS > 0)))
    capitals = np.concatenate(([0], np.cumsum(shapes & (_CAPITAL | _INITIAL) > 0)))
    stops = np.append(starts, len(shapes))[1:]
    count = letters[stops] - letters[starts]
    headline = (count >= _HEADLINE_WORDS) & (capitals[stops] - capitals[starts] >= _HEADLINE * count)
    uninformative = np.repeat(headline, stops - starts)
    # The first word may follow a quotation mark or a bracket.
    uninformative |= (shapes & _LETTERS > 0) & (letters[:-1] == np.repeat(letters[starts], stops - starts))
    return uninformative


def _between(words: np.ndarray, names: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return which words connect two parts of a name, (m,) bool: of, of the, a dot after an initial, a hyphen.

    `words` (m,) are the property bits of the words, `names` (m,) says which of them belong to names.
    """
    # Pad each sentence with two empty words at its end, so that looking two words ahead or back never leaves it.
    padded = np.arange(len(words)) + 2 * np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(words))))
    size = len(words) + 2 * len(starts)
    shapes, named = np.zeros(size, words.dtype), np.zeros(size, bool)
    shapes[padded], named[padded] = words, names
    ahead = np.concatenate((named, [False, False]))
    behind = np.concatenate(([False, False], named))
    before, after = behind[1 : size + 1], ahead[1 : size + 1]
    link = np.concatenate(([False], shapes & _LINK > 0, [False]))
    links = link[1:-1] & (before & after | before & link[2:] & ahead[2:] | behind[:size] & link[:-2] & after)
    previous = np.concatenate(([0], shapes[:-1]))
    dots = (shapes & _DOT > 0) & (previous & (_INITIAL | _ABBREVIATION) > 0)
    apostrophes = (shapes & _APOSTROPHE > 0) & (previous & _INITIAL > 0)
    return (links | (dots | apostrophes | (shapes & _JOINT > 0)) & before & after)[padded]


def _runs(mask: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the starts and ends of the runs of true values; no run crosses a sentence boundary."""
    begins = np.zeros(len(mask) + 1, dtype=bool)
    begins[starts] = True
    begins[-1] = True
    padded = np.concatenate(([False], mask, [False]))
    firsts = np.flatnonzero(mask & (~padded[:-2] | begins[:-1]))
    stops = np.flatnonzero(mask & (~padded[2:] | begins[1:])) + 1
    return firsts, stops

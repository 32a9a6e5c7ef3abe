"""`mined`: phrases, and Chinese words, learned from the text itself without a dictionary or model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, ClassVar, Literal, cast

import numpy as np

from ernie.errors import UserError
from ernie.text.scripts import HAN_CHARACTER
from ernie.text.segment import stopwords
from ernie.text.segment.base import Batch, Kind, Segmenter, Words, in_order, make_spans, segmenters
from ernie.text.segment.chinese_lists import variants
from ernie.text.segment.ngrams import BREAK, LONGEST, MOST_SYMBOLS, Text
from ernie.text.segment.phrases import Criteria, Phrases
from ernie.text.segment.words import Lexicon
from ernie.text.sentences import detect_language

_LONGEST_CHINESE = 3  # words in a Chinese phrase
_CHINESE_STOPWORDS = variants(stopwords.CHINESE)
_LANGUAGE_WORDS = 50_000  # used to detect the language


@segmenters.register("mined")
@dataclass(frozen=True)
class Mined(Segmenter):
    """Phrases of 2 to 4 words in English and of 2 or 3 words in Chinese, and the Chinese words themselves.

    A phrase occurs at least `least` times in the sample; `cohesion` (0 to 1) is the minimum association of its parts,
    `freedom` (nats) the minimum entropy of its neighbors.  Higher values give fewer phrases with higher precision.
    """

    language: Literal["auto", "en", "zh"] = "auto"
    least: int = 3
    cohesion: float = 0.2
    freedom: float = 0.5
    needs_fit: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.least < 2:
            raise UserError(f"least: expected a count of at least 2, found {self.least}")

    def for_language(self, language: str) -> Segmenter:
        by_characters = language in ("zh", "ja")
        return replace(self, language=cast(Any, "zh" if by_characters else "en")) if self.language == "auto" else self

    def fit(self, batches: Iterable[Batch]) -> Segmenter:
        """Learn from the sample, which is held in memory."""
        sample = list(batches)
        language: str = self.language
        if language == "auto":
            words = chain.from_iterable(words for words, _ in sample)
            language = detect_language("".join(islice(words, _LANGUAGE_WORDS)))
        return self._fit_chinese(sample) if language == "zh" else self._fit_english(sample)

    def _fit_english(self, sample: Sequence[Batch]) -> EnglishPhrases:
        numbers = _number(_count(sample, str.isalpha, str.lower))
        forms = {form: n for word, n in numbers.items() for form in (word.upper(), word.capitalize(), word)}
        stop = {numbers[word] for word in stopwords.ENGLISH if word in numbers}
        text = _join(sample, forms)
        return EnglishPhrases(forms, Phrases.learn(text, self._criteria(LONGEST, stop)))

    def _fit_chinese(self, sample: Sequence[Batch]) -> ChineseWords:
        characters = _number(_count(sample, _is_chinese, str))
        text = _join(sample, characters)
        lexicon = Lexicon.learn(text)
        firsts, numbers = lexicon.cut(text)
        frequent = np.argsort(-np.bincount(numbers[numbers >= 0], minlength=lexicon.size), kind="stable")
        frequent = frequent[:MOST_SYMBOLS]
        symbols = np.full(lexicon.size + 1, BREAK)  # the extra last entry is reached by number -1
        symbols[frequent] = np.arange(1, len(frequent) + 1)
        stop = {int(symbols[lexicon.number(word, characters)]) for word in _CHINESE_STOPWORDS} - {BREAK}
        starts = np.searchsorted(firsts, text.starts)
        phrases = Phrases.learn(Text(symbols[numbers], starts), self._criteria(_LONGEST_CHINESE, stop))
        return ChineseWords(characters, lexicon, symbols, phrases)

    def _criteria(self, longest: int, stop: set[int]) -> Criteria:
        return Criteria(longest, self.least, self.cohesion, self.freedom, frozenset(stop))


@dataclass(frozen=True)
class EnglishPhrases(Segmenter):
    """The fitted `mined` for English: numbers of word forms, and phrases made of these numbers."""

    forms: dict[str, int]
    phrases: Phrases

    def spans(self, words: Sequence[str], starts: np.ndarray) -> np.ndarray:
        text = Text(_symbols(words, self.forms), starts)
        return make_spans(*self.phrases.find(text), Kind.PHRASE)


@dataclass(frozen=True)
class ChineseWords(Segmenter):
    """The fitted `mined` for Chinese: a lexicon of words, the `symbols` of its entries, and phrases made of these."""

    characters: dict[str, int]
    lexicon: Lexicon
    symbols: np.ndarray
    phrases: Phrases

    def spans(self, words: Sequence[str], starts: np.ndarray) -> np.ndarray:
        text = Text(_symbols(words, self.characters), starts)
        firsts, numbers = self.lexicon.cut(text)
        edges = np.append(firsts, len(words))
        long = np.flatnonzero(np.diff(edges) > 1)
        first, stop = self.phrases.find(Text(self.symbols[numbers], np.searchsorted(firsts, starts)))
        spans = (
            make_spans(edges[long], edges[long + 1], Kind.WORD),
            make_spans(edges[first], edges[stop], Kind.PHRASE),
        )
        return in_order(np.concatenate(spans))


def _count(sample: Sequence[Batch], include: Callable[[str], bool], form: Callable[[str], str]) -> Counter[str]:
    """Count the forms of all words of the sample for which `include` is true."""
    counts: Counter[str] = Counter()
    for words, _ in sample:
        for word, count in Words.of(words).counts():
            if include(word):
                counts[form(word)] += count
    return counts


def _number(counts: Counter[str]) -> dict[str, int]:
    """Number the most frequent words from 1; ties are alphabetical, so that the order of the text does not matter."""
    ranked = sorted(counts, key=lambda word: (-counts[word], word))[:MOST_SYMBOLS]
    return {word: number for number, word in enumerate(ranked, 1)}


def _symbols(words: Sequence[str], numbers: dict[str, int]) -> np.ndarray:
    return Words.of(words).look_up(numbers, BREAK)


def _join(sample: Sequence[Batch], numbers: dict[str, int]) -> Text:
    """Concatenate the sample into one text."""
    sizes = np.cumsum([0, *(len(words) for words, _ in sample)])
    symbols = [_symbols(words, numbers) for words, _ in sample]
    starts = [starts + size for (_, starts), size in zip(sample, sizes, strict=False)]
    empty = [np.empty(0, np.int64)]
    return Text(np.concatenate(symbols or empty), np.concatenate(starts or empty))


def _is_chinese(word: str) -> bool:
    return HAN_CHARACTER.fullmatch(word) is not None

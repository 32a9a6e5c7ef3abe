"""`mined`: words and phrases that recur in a sample are found in the text."""

from __future__ import annotations

import random

import numpy as np
import pytest

from ernie.errors import UserError
from ernie.text.segment.base import Kind, Segmenter
from ernie.text.segment.mined import Mined


def batch(sentences: list[list[str]]) -> tuple[list[str], np.ndarray]:
    words = [word for sentence in sentences for word in sentence]
    return words, np.cumsum([0, *map(len, sentences)])[:-1]


def found(segmenter: Segmenter, sentence: list[str], kind: Kind) -> list[str]:
    spans = segmenter.spans(sentence, np.array([0]))
    separator = " " if sentence[0].isascii() else ""
    return [separator.join(sentence[first:stop]) for first, stop, span_kind in spans.tolist() if span_kind == kind]


def english(sentences: int = 400) -> list[list[str]]:
    """Random words with an occasional fixed phrase between them."""
    rng = random.Random(1)
    single = [f"{a}{b}" for a in ("ba", "lo", "mi", "du", "fe") for b in ("ra", "ko", "ti", "sen", "mo")]
    phrases = [["stone", "mill"], ["coat", "of", "arms"], ["house", "of", "the", "lords"]]
    made = []
    for _ in range(sentences):
        words: list[str] = []
        for _ in range(rng.randint(3, 7)):
            words += rng.choice(phrases) if rng.random() < 0.2 else [rng.choice(single)]
        made.append([words[0].capitalize(), *words[1:], "."])
    return made


def chinese(sentences: int = 1500) -> list[list[str]]:
    """Words of one to three characters in random order."""
    rng = random.Random(1)
    characters = [chr(0x4E00 + i) for i in range(60)]
    lexicon = ["".join(characters[i : i + 2]) for i in range(0, 30, 2)]
    lexicon += ["".join(characters[i : i + 3]) for i in range(30, 54, 3)] + characters[54:]
    return [[*"".join(rng.choice(lexicon) for _ in range(rng.randint(4, 9))), "。"] for _ in range(sentences)]


@pytest.fixture(scope="module")
def phrases() -> Segmenter:
    return Mined("en").fit([batch(english())])


class TestEnglish:
    def test_phrases_of_two_three_and_four_words_are_found_regardless_of_case(self, phrases):
        sentence = "Bara Stone mill loko a COAT of arms dusen house of the lords .".split()
        expected = ["Stone mill", "COAT of arms", "house of the lords"]
        assert found(phrases, sentence, Kind.PHRASE) == expected

    def test_words_that_co_occur_by_chance_are_not_a_phrase(self, phrases):
        assert found(phrases, "Bara loko mira dumo stone .".split(), Kind.PHRASE) == []

    def test_a_phrase_crosses_neither_punctuation_nor_a_sentence_boundary(self, phrases):
        assert found(phrases, "stone , mill".split(), Kind.PHRASE) == []
        assert phrases.spans(["bara", "stone", "mill"], np.array([0, 2])).tolist() == []

    def test_no_phrase_begins_or_ends_with_a_stop_word(self):
        sample = [["the", "mill", "of", noun, "."] for noun in ("stone", "brick", "wood", "iron")] * 20
        fitted = Mined("en").fit([batch(sample)])
        assert found(fitted, "the mill of stone .".split(), Kind.PHRASE) == []

    def test_words_rarer_than_the_least_count_are_not_a_phrase(self):
        fitted = Mined("en", least=1000).fit([batch(english())])
        assert found(fitted, "bara stone mill loko".split(), Kind.PHRASE) == []


class TestChinese:
    def test_the_words_that_make_up_a_text_are_found(self):
        sample = chinese()
        fitted = Mined("zh").fit([batch(sample)])
        joined = [chr(0x4E00 + i) for i in (0, 1, 54, 30, 31, 32, 55, 4, 5)]
        words = ["".join(joined[0:2]), "".join(joined[3:6]), "".join(joined[7:9])]
        assert found(fitted, joined, Kind.WORD) == words

    def test_a_phrase_is_made_of_words(self):
        rng = random.Random(2)
        pair = list("\u4e00\u4e01\u4e02\u4e03")
        sample = [[*sentence[:-1], *(pair if rng.random() < 0.3 else []), "。"] for sentence in chinese()]
        fitted = Mined("zh").fit([batch(sample)])
        spans = fitted.spans([*"\u4e04\u4e05", *pair, "。"], np.array([0])).tolist()
        phrases = [span for span in spans if span[2] == Kind.PHRASE]
        words = {edge for first, stop, kind in spans if kind == Kind.WORD for edge in (first, stop)}
        assert phrases
        assert all({first, stop} <= words for first, stop, _ in phrases)


def test_the_language_is_detected_from_the_sample():
    chinese_words = Mined().fit([batch(chinese(300))])
    english_phrases = Mined().fit([batch(english(300))])
    assert found(english_phrases, "bara stone mill".split(), Kind.PHRASE) == ["stone mill"]
    assert found(chinese_words, list("\u4e00\u4e01"), Kind.WORD)


def test_the_order_of_the_sample_changes_nothing():
    sample = english()
    backward = Mined("en").fit([batch(sample[200:]), batch(sample[:200])])
    text = batch(sample)
    assert backward.spans(*text).tolist() == Mined("en").fit([text]).spans(*text).tolist()


def test_a_least_count_of_one_is_rejected():
    with pytest.raises(UserError, match="least: expected a count of at least 2, found 1"):
        Mined(least=1)

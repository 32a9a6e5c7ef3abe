"""`capitals`: names found by their capital letters."""

from __future__ import annotations

import numpy as np
import pytest

from ernie.text.segment.base import Kind, Segmenter
from ernie.text.segment.capitals import Capitals

SAMPLE = """
Yesterday the wheat of Berlin was sold . | We sold wheat . | The wheat grows in Berlin . | He says wheat grows .
Wheat grows . | Many people sold wheat to many others . | Berlin grows . | It takes over . | It takes the mill over .
""".replace("\n", " | ")


def batch(text: str) -> tuple[list[str], np.ndarray]:
    sentences = [sentence.split() for sentence in text.split("|") if sentence.split()]
    return [word for sentence in sentences for word in sentence], np.cumsum([0, *map(len, sentences)])[:-1]


@pytest.fixture(scope="module")
def capitals() -> Segmenter:
    return Capitals().fit([batch(SAMPLE)])


def names(segmenter: Segmenter, text: str) -> list[str]:
    words, starts = batch(text)
    spans = segmenter.spans(words, starts)
    assert set(spans[:, 2].tolist()) <= {Kind.ENTITY}
    return [" ".join(words[first:stop]) for first, stop, _ in spans.tolist()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("we saw Anna Weber in Paris .", ["Anna Weber", "Paris"]),
        ("at the University of the South in May", ["University of the South"]),
        ("by Ludwig van Beethoven and Maria de la Cruz", ["Ludwig van Beethoven", "Maria de la Cruz"]),
        ("wrote J . R . R . Tolkien .", ["J . R . R . Tolkien"]),
        ("in the U . S . and in St . Louis", ["U . S", "St . Louis"]),
        ("asked Jean - Paul O ' Brien of AT & T", ["Jean - Paul O ' Brien of AT & T"]),
        ("so I said on Monday that Mr . Smith has A plan", ["Smith"]),
        ("born in Germany and France", ["Germany", "France"]),
    ],
)
def test_names_inside_a_sentence(capitals, text, expected):
    assert names(capitals, text) == expected


def test_the_first_word_is_a_name_unless_the_sample_has_it_in_lower_case(capitals):
    assert names(capitals, "Berlin sold it . | Wheat was sold . | Many saw it . | The mill of it") == ["Berlin"]
    assert names(capitals, "“ Wheat was sold .") == []


def test_in_a_headline_words_that_the_sample_has_in_lower_case_are_not_names(capitals):
    assert names(capitals, "LEICESTERSHIRE TAKES WHEAT OVER") == ["LEICESTERSHIRE"]


def test_no_name_crosses_a_sentence_boundary(capitals):
    assert names(capitals, "we saw Anna | Weber saw Paris") == ["Anna", "Weber", "Paris"]


@pytest.mark.parametrize("ends", ["in Washington , D . C .", "at the University", "with Mr Smith"])
@pytest.mark.parametrize("follows", ["Anna came .", "of the South", "& Sons"])
def test_names_in_a_sentence_do_not_depend_on_the_next_one(capitals: Segmenter, ends: str, follows: str) -> None:
    assert names(capitals, f"{ends} | {follows}") == [*names(capitals, ends), *names(capitals, follows)]

"""What all segmenters share: names, precedence, and that a sentence is judged by itself."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ernie import config
from ernie.config import ConfigError
from ernie.text.segment import default_segmenters
from ernie.text.segment.base import Kind, Segmenter, combine, covered, disjoint, segmenters
from ernie.tree import from_dict


@dataclass(frozen=True)
class Given(Segmenter):
    """Finds what it is told to."""

    found: tuple[tuple[int, int, int], ...]

    def spans(self, words: Sequence[str], starts: np.ndarray) -> np.ndarray:
        return np.array(self.found, np.int64).reshape(-1, 3)


@dataclass(frozen=True)
class Holder:
    """A configuration that has segmenters."""

    segmenters: list[Segmenter]


def build(*given: dict) -> list[Segmenter]:
    return config.build(Holder, from_dict({"segmenters": list(given)})).segmenters


def test_a_segmenter_is_made_from_its_kind_and_its_keys() -> None:
    assert build({"kind": "mined", "language": "zh", "least": 7}) == [segmenters["mined"](language="zh", least=7)]


def test_a_wrong_kind_is_told_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no segmenter is called 'mind'\. Did you mean 'mined'\?"):
        build({"kind": "mind"})


def test_a_missing_kind_is_told_all_there_are() -> None:
    with pytest.raises(ConfigError, match=r"kind: this key is required\. Known: capitals, chinese_names, dictionary"):
        build({"least": 5})


def test_an_earlier_segmenter_keeps_its_span_against_a_later_one_of_the_same_kind() -> None:
    first = Given(((2, 4, Kind.PHRASE),))
    second = Given(((0, 2, Kind.PHRASE), (3, 6, Kind.PHRASE), (3, 5, Kind.ENTITY)))
    found = combine([first, second], ["a"] * 6, np.array([0]))
    assert found.tolist() == [[0, 2, Kind.PHRASE], [2, 4, Kind.PHRASE], [3, 5, Kind.ENTITY]]


def test_without_segmenters_there_are_no_spans() -> None:
    assert combine([], ["a"], np.array([0])).shape == (0, 3)


stretches = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5)).map(lambda pair: (pair[0], sum(pair)))).map(
    sorted
)


@given(stretches)
def test_stretches_that_stay_do_not_overlap_and_every_other_overlaps_one_before(spans: list[tuple[int, int]]) -> None:
    firsts, stops = np.array(spans, np.int64).reshape(-1, 2).T
    keep = disjoint(firsts, stops)
    kept = [span for span, stays in zip(spans, keep, strict=True) if stays]
    assert all(before[1] <= after[0] for before, after in pairwise(kept))
    for span, stays in zip(spans, keep, strict=True):
        assert stays or any(other[0] <= span[0] < other[1] for other in kept)


@given(stretches)
def test_covered_places_are_those_inside_a_stretch(spans: list[tuple[int, int]]) -> None:
    firsts, stops = np.array(spans, np.int64).reshape(-1, 2).T
    expected = [any(first <= i < stop for first, stop in spans) for i in range(30)]
    assert covered(firsts, stops, 30).tolist() == expected


ENGLISH = [
    "the old stone mill of New York grinds wheat for Anna Weber .",
    "Anna Weber sleeps in the old stone mill .",
    "In New York the old stone mill stands by the river .",
    "wheat grows where Anna Weber and the river meet .",
]
CHINESE = [
    "中国人民银行今天宣布降息。",
    "记者王小明报道中国的经济。",
    "人民银行在北京宣布。",
    "今天的经济新闻。",
    "北京的记者王小明。",
]


def batch(sentences: Sequence[Sequence[str]]) -> tuple[list[str], np.ndarray]:
    words = [word for sentence in sentences for word in sentence]
    return words, np.cumsum([0, *map(len, sentences)])[:-1]


@pytest.mark.parametrize("language", ["en", "zh"])
@given(data=st.data())
def test_what_is_found_in_a_sentence_does_not_depend_on_its_neighbours(language: str, data: st.DataObject) -> None:
    cut = [line.split() for line in ENGLISH] if language == "en" else [list(line) for line in CHINESE]
    fitted = [segmenter.fit([batch(cut * 3)]) for segmenter in default_segmenters(language)]
    chosen = data.draw(st.lists(st.sampled_from(cut), min_size=1, max_size=6))
    words, starts = batch(chosen)
    together = combine(fitted, words, starts)
    apart = [combine(fitted, sentence, np.array([0])) + np.array([start, start, 0])
             for sentence, start in zip(chosen, starts, strict=True)]  # fmt: skip
    assert together.tolist() == np.concatenate(apart).tolist()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_default_segmenters_can_be_sent_to_another_process(language: str) -> None:
    cut = [line.split() for line in ENGLISH] if language == "en" else [list(line) for line in CHINESE]
    fitted = [segmenter.fit([batch(cut * 3)]) for segmenter in default_segmenters(language)]
    copies = pickle.loads(pickle.dumps(fitted))
    words, starts = batch(cut)
    found = combine(fitted, words, starts)
    assert len(found)
    assert combine(copies, words, starts).tolist() == found.tolist()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_default_segmenters_learn_nothing_from_nothing(language: str) -> None:
    fitted = [segmenter.fit([]) for segmenter in default_segmenters(language)]
    assert combine(fitted, ["one", "。"], np.array([0])).tolist() == []
    assert combine(fitted, [], np.array([], np.int64)).tolist() == []

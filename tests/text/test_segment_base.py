"""What all segmenters share: names, precedence, and that each sentence is segmented independently."""

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
from ernie.yaml_tree import from_dict


@dataclass(frozen=True)
class FixedSpans(Segmenter):
    """Returns fixed spans."""

    found: tuple[tuple[int, int, int], ...]

    def spans(self, words: Sequence[str], starts: np.ndarray) -> np.ndarray:
        return np.array(self.found, np.int64).reshape(-1, 3)


@dataclass(frozen=True)
class Holder:
    """A configuration with segmenters."""

    segmenters: list[Segmenter]


def build(*entries: dict) -> list[Segmenter]:
    return config.build(Holder, from_dict({"segmenters": list(entries)})).segmenters


def test_a_segmenter_is_made_from_its_kind_and_its_keys() -> None:
    assert build({"kind": "mined", "language": "zh", "least": 7}) == [segmenters["mined"](language="zh", least=7)]


def test_the_error_of_an_unknown_kind_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"no segmenter is called 'mind'\. Did you mean 'mined'\?"):
        build({"kind": "mind"})


def test_the_error_of_a_missing_kind_lists_all_kinds() -> None:
    with pytest.raises(ConfigError, match=r"kind: this key is required\. Known: capitals, chinese_names, dictionary"):
        build({"least": 5})


def test_an_earlier_segmenter_takes_precedence_over_a_later_one_within_a_kind() -> None:
    first = FixedSpans(((2, 4, Kind.PHRASE),))
    second = FixedSpans(((0, 2, Kind.PHRASE), (3, 6, Kind.PHRASE), (3, 5, Kind.ENTITY)))
    found = combine([first, second], ["a"] * 6, np.array([0]))
    assert found.tolist() == [[0, 2, Kind.PHRASE], [2, 4, Kind.PHRASE], [3, 5, Kind.ENTITY]]


def test_without_segmenters_there_are_no_spans() -> None:
    assert combine([], ["a"], np.array([0])).shape == (0, 3)


intervals = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5)).map(lambda pair: (pair[0], sum(pair)))).map(
    sorted
)


@given(intervals)
def test_kept_intervals_are_disjoint_and_every_other_begins_inside_a_kept_one(spans: list[tuple[int, int]]) -> None:
    firsts, stops = np.array(spans, np.int64).reshape(-1, 2).T
    keep = disjoint(firsts, stops)
    kept = [span for span, is_kept in zip(spans, keep, strict=True) if is_kept]
    assert all(before[1] <= after[0] for before, after in pairwise(kept))
    for span, is_kept in zip(spans, keep, strict=True):
        assert is_kept or any(earlier[0] <= span[0] < earlier[1] for earlier in kept)


@given(intervals)
def test_covered_positions_are_those_inside_an_interval(spans: list[tuple[int, int]]) -> None:
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
def test_spans_of_a_sentence_do_not_depend_on_its_neighbors(language: str, data: st.DataObject) -> None:
    cut = [line.split() for line in ENGLISH] if language == "en" else [list(line) for line in CHINESE]
    fitted = [segmenter.fit([batch(cut * 3)]) for segmenter in default_segmenters(language)]
    chosen = data.draw(st.lists(st.sampled_from(cut), min_size=1, max_size=6))
    words, starts = batch(chosen)
    together = combine(fitted, words, starts)
    separately = [combine(fitted, sentence, np.array([0])) + np.array([start, start, 0])
             for sentence, start in zip(chosen, starts, strict=True)]  # fmt: skip
    assert together.tolist() == np.concatenate(separately).tolist()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_default_segmenters_can_be_pickled(language: str) -> None:
    cut = [line.split() for line in ENGLISH] if language == "en" else [list(line) for line in CHINESE]
    fitted = [segmenter.fit([batch(cut * 3)]) for segmenter in default_segmenters(language)]
    copies = pickle.loads(pickle.dumps(fitted))
    words, starts = batch(cut)
    found = combine(fitted, words, starts)
    assert len(found)
    assert combine(copies, words, starts).tolist() == found.tolist()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_default_segmenters_fitted_on_nothing_find_nothing(language: str) -> None:
    fitted = [segmenter.fit([]) for segmenter in default_segmenters(language)]
    assert combine(fitted, ["one", "。"], np.array([0])).tolist() == []
    assert combine(fitted, [], np.array([], np.int64)).tolist() == []

"""`chinese_names`: names found by their form and context."""

from __future__ import annotations

import numpy as np
import pytest

from ernie.text.segment.base import Kind, Segmenter
from ernie.text.segment.chinese_names import ChineseNames


def names(segmenter: Segmenter, *sentences: str) -> list[str]:
    words = list("".join(sentences))
    starts = np.cumsum([0, *map(len, sentences)])[:-1]
    spans = segmenter.spans(words, starts)
    assert set(spans[:, 2].tolist()) <= {Kind.ENTITY}
    return ["".join(words[first:stop]) for first, stop, _ in spans.tolist()]


@pytest.fixture(scope="module")
def unfitted() -> Segmenter:
    return ChineseNames().fit([])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("他在北京市和河北省的张北县工作", ["北京市", "河北省", "张北县"]),
        ("在证券市场上，中国人很多", []),
        ("他是南方机械公司的人", ["南方机械公司"]),
        ("作家写了《红楼梦》和《西游记》", ["红楼梦", "西游记"]),
        ("总统比尔·克林顿说", ["比尔·克林顿"]),
        ("江泽民主席的话", ["江泽民"]),
        ("记者王小明在看", ["王小明"]),
        ("有江泽民、李鹏、乔石（左）", ["李鹏", "乔石"]),
        ("今天天气很好", []),
    ],
)
def test_names_are_found(unfitted, text, expected):
    assert names(unfitted, text) == expected


def test_names_are_found_in_every_sentence_and_never_across_sentences(unfitted):
    assert names(unfitted, "他去北京。", "他去上", "海。", "去广州。") == ["北京", "广州"]


def test_a_person_often_next_to_a_title_is_recognized_everywhere():
    words = list("记者王小明说。") * 3
    fitted = ChineseNames().fit([(words, np.array([0, 7, 14]))])
    assert names(fitted, "昨天王小明来了") == ["王小明"]


def test_words_of_several_characters_are_skipped(unfitted):
    words = ["AI", "和", "北", "京", "hello"]
    assert unfitted.spans(words, np.array([0])).tolist() == [[2, 4, Kind.ENTITY]]

"""Invariants of the spans of every segmenter, whatever the words."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ernie.text.segment import default_segmenters
from ernie.text.segment.base import Kind, Segmenter, in_order
from ernie.text.segment.jieba import Jieba

# Words that the rules look for, mixed with any others.
_CUES = [*"江泽民主席在北京市大学公司《》·、。记者", "Anna", "of", "the", "York", "-", "&", "O", "'", ".", "mill"]
SENTENCES = st.lists(
    st.lists(st.one_of(st.sampled_from(_CUES), st.text(max_size=4)), min_size=1, max_size=10), max_size=5
)


def batch(sentences: Sequence[Sequence[str]]) -> tuple[list[str], np.ndarray]:
    words = [word for sentence in sentences for word in sentence]
    return words, np.cumsum([0, *map(len, sentences)])[:-1].astype(np.int64)


def check(segmenter: Segmenter, sentences: Sequence[Sequence[str]]) -> None:
    """Check that spans are sorted, not empty, inside one sentence, and disjoint within a kind."""
    words, starts = batch(sentences)
    spans = segmenter.spans(words, starts)
    assert spans.dtype == np.int64
    assert spans.shape == (len(spans), 3)
    assert spans.tolist() == in_order(spans).tolist()
    assert (spans[:, 0] < spans[:, 1]).all()
    first, last = (np.searchsorted(starts, edge, side="right") for edge in (spans[:, 0], spans[:, 1] - 1))
    assert first.tolist() == last.tolist()
    for kind in Kind:
        own = spans[spans[:, 2] == kind]
        assert (own[:-1, 1] <= own[1:, 0]).all()


@pytest.mark.parametrize("language", ["en", "zh"])
@given(sample=SENTENCES, text=SENTENCES)
def test_default_segmenters_give_valid_spans(language: str, sample: list[list[str]], text: list[list[str]]) -> None:
    for segmenter in default_segmenters(language):
        check(segmenter.fit([batch(sample)] * 3), sample + text)


@pytest.mark.skipif(importlib.util.find_spec("jieba") is None, reason="needs jieba")
@given(text=SENTENCES)
def test_jieba_gives_valid_spans(text: list[list[str]]) -> None:
    check(Jieba(), text)

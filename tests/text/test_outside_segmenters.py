"""Segmenters that wrap third-party packages."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from ernie.errors import UserError
from ernie.text.segment.base import Kind
from ernie.text.segment.jieba import Jieba
from ernie.text.segment.spacy import Spacy


@pytest.mark.skipif(importlib.util.find_spec("jieba") is None, reason="needs jieba")
@pytest.mark.parametrize("entities", [True, False])
def test_jieba_marks_words_and_names_as_spans_of_the_given_units(entities):
    words = [*"江泽民在北京大学讲话", "AI", *"。今天天气很好"]
    starts = np.array([0, 12])
    spans = Jieba(entities=entities).spans(words, starts).tolist()
    found = {kind: ["".join(words[first:stop]) for first, stop, label in spans if label == kind] for kind in Kind}
    assert found[Kind.WORD][:3] == ["江泽民", "北京大学", "讲话"]
    assert found[Kind.ENTITY] == (["江泽民", "北京大学"] if entities else [])


@pytest.mark.skipif(
    importlib.util.find_spec("spacy") is None, reason="needs spaCy, 200 MB that `dev` leaves out: pip install spacy"
)
def test_spacy_marks_the_names_its_model_finds(tmp_path):
    import spacy

    pipeline = spacy.blank("en")
    pipeline.add_pipe("entity_ruler").add_patterns([{"label": "GPE", "pattern": "New York"}])
    pipeline.to_disk(tmp_path / "model")
    words = ["We", "saw", "New", "York", ".", "New", "York", "slept"]
    spans = Spacy(str(tmp_path / "model")).spans(words, np.array([0, 5]))
    assert spans.tolist() == [[2, 4, Kind.ENTITY], [5, 7, Kind.ENTITY]]


@pytest.mark.skipif(importlib.util.find_spec("spacy") is not None, reason="spaCy is installed")
def test_without_spacy_the_error_says_how_to_install_it():
    with pytest.raises(UserError, match="pip install spacy"):
        Spacy()

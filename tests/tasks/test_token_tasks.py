"""Capitalization and token-document relation: labels checked against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.helpers import document, document_from, numbered, vocabulary

from ernie.data.document import IGNORE, Document
from ernie.errors import UserError
from tasks.base import PretrainTask
from tasks.pretraining.capitalization import Capitalization
from tasks.pretraining.token_document import TokenDocument

RNG = np.random.default_rng(0)
lengths = st.lists(st.integers(min_value=1, max_value=12), min_size=1, max_size=12)


def labeled(task: PretrainTask, text: Document) -> list[tuple[list[int], list[int]]]:
    """Ids and labels of each sample, without the special tokens."""
    samples = task.samples([text], numbered(), RNG)
    return [(s.ids[1:-1].tolist(), np.asarray(s.labels["label"])[1:-1].tolist()) for s in samples]


# ------------------------------------------------------------------------------------------ capitalization


def test_capitals_are_labeled_but_not_visible_in_the_input() -> None:
    tokenizer = vocabulary("anna saw nasa ' s 3 rockets in paris 。 中", "##burg")
    text = document_from(tokenizer, ["Anna saw NASA's 3 rockets in Parisburg 中。"])
    (sample,) = Capitalization().samples([text], tokenizer, RNG)
    shown = [tokenizer.tokens[i] for i in sample.ids[1:-1]]
    labels = np.asarray(sample.labels["label"])[1:-1].tolist()
    assert list(zip(shown, labels, strict=True)) == [
        ("anna", 1),
        ("saw", 0),
        ("nasa", 1),
        ("'", IGNORE),
        ("s", 0),
        ("3", IGNORE),
        ("rockets", 0),
        ("in", 0),
        ("paris", 1),
        ("##burg", IGNORE),  # only a word's first token is labeled
        ("中", IGNORE),
        ("。", IGNORE),
    ]


def test_capitalization_skips_spans_without_letters() -> None:
    tokenizer = vocabulary("1 2 3 a")
    text = document_from(tokenizer, ["1 2 3 1 2 3", "A 1 2 3"])
    samples = list(Capitalization(max_len=8).samples([text], tokenizer, RNG))
    assert [s.ids[1:-1].tolist() for s in samples] == [text.sentence(1).ids.tolist()]


def test_capitalization_rejects_a_cased_tokenizer() -> None:
    Capitalization().check(vocabulary("a"))
    with pytest.raises(UserError, match="can only be learned with a tokenizer that lower-cases"):
        Capitalization().check(vocabulary("a", lowercase=False))


# ------------------------------------------------------------------------------------------ token-document


@given(lengths, st.integers(min_value=6, max_value=40), st.integers(min_value=8, max_value=60))
def test_a_token_is_positive_exactly_if_another_segment_contains_it(
    sentences: list[int], vocab_size: int, max_len: int
) -> None:
    text = document(sentences, vocab_size=vocab_size)
    found = labeled(TokenDocument(max_len=max_len), text)
    for number, (ids, labels) in enumerate(found):
        others = {token for k, (other, _) in enumerate(found) if k != number for token in other}
        assert labels == [int(token in others) for token in ids]


@given(lengths, st.integers(min_value=8, max_value=60))
def test_token_document_segments_cover_the_whole_document(sentences: list[int], max_len: int) -> None:
    text = document(sentences)
    found = labeled(TokenDocument(max_len=max_len), text)
    if len(sentences) > 1 or sum(sentences) > max_len - 2:
        assert len(found) >= 2
        assert [token for ids, _ in found for token in ids] == text.ids.tolist()
    else:
        assert found == []


def test_a_document_that_fits_one_sample_is_split_in_two_at_a_sentence_end() -> None:
    text = document([3, 4, 5, 6])
    assert [len(ids) for ids, _ in labeled(TokenDocument(), text)] == [7, 11]
    assert [len(ids) for ids, _ in labeled(TokenDocument(), document([5, 1]))] == [5, 1]

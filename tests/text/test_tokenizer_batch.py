"""Calling a tokenizer: padded batches that a model accepts, also with offsets or without padding."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.helpers import python, vocabulary

from ernie import ErnieModel, ErnieTokenizer
from ernie.errors import UserError
from ernie.model.config import EncoderConfig
from ernie.text.tokenizer import Tokenizer
from ernie.text.train import train_sentencepiece

TABLE = "found a table with the columns 'text'; give one of them, or its rows"
TOKENIZER = vocabulary("the cat sees a dog in paris .", "##s", "##er")
words = st.sampled_from(["the", "cat", "Dog", "sees", "cater", "paris.", "unknown", ""])
texts = st.lists(words, max_size=8).map(" ".join)
pairs = st.lists(st.tuples(texts, texts), min_size=1, max_size=4)
quick = settings(max_examples=50)


def framed(first: str, second: str | None = None) -> list[int]:
    """The ids of one text or pair with its special tokens, computed by hand."""
    ids = [TOKENIZER.cls_id, *TOKENIZER.encode(first).ids, TOKENIZER.sep_id]
    return ids if second is None else [*ids, *TOKENIZER.encode(second).ids, TOKENIZER.sep_id]


@quick
@given(st.lists(texts, min_size=1, max_size=5))
def test_each_row_is_its_text_with_special_tokens_and_then_padding(many: list[str]) -> None:
    batch = TOKENIZER(many)
    assert list(batch) == ["input_ids", "token_type_ids", "attention_mask"]
    rows = [framed(text) for text in many]
    for row, *columns in zip(rows, *batch.values(), strict=True):
        padding = max(map(len, rows)) - len(row)
        ids, segments, mask = columns
        assert ids.tolist() == row + [TOKENIZER.pad_id] * padding
        assert not segments.any()
        assert mask.tolist() == [1] * len(row) + [0] * padding
    assert {values.dtype for values in batch.values()} == {np.dtype(np.int64)}


@quick
@given(pairs)
def test_token_type_ids_separate_the_texts_of_a_pair(many: list[tuple[str, str]]) -> None:
    batch = TOKENIZER(*map(list, zip(*many, strict=True)), padding=False)
    for i, (first, second) in enumerate(many):
        assert batch["input_ids"][i].tolist() == framed(first, second)
        ones = len(TOKENIZER.encode(second).ids) + 1
        assert batch["token_type_ids"][i].tolist() == [0] * (len(framed(first, second)) - ones) + [1] * ones


@quick
@given(pairs, st.integers(3, 14))
def test_only_rows_longer_than_max_len_are_cut_to_it(many: list[tuple[str, str]], max_len: int) -> None:
    firsts, seconds = map(list, zip(*many, strict=True))
    for arguments, rows in (((firsts,), map(framed, firsts)), ((firsts, seconds), map(framed, firsts, seconds))):
        found = TOKENIZER(*arguments, max_len=max_len, padding=False)["input_ids"]
        assert [len(row) for row in found] == [min(max_len, len(row)) for row in rows]
        assert all(row[0] == TOKENIZER.cls_id and row[-1] == TOKENIZER.sep_id for row in found)


def test_the_longer_text_of_a_pair_is_cut() -> None:
    long, short = "the cat sees a dog in paris .", "a dog"
    for first, second in ((long, short), (short, long)):
        cut = TOKENIZER(first, second, max_len=8)["input_ids"][0].tolist()
        assert cut == framed(*(" ".join(text.split()[:3]) for text in (first, second)))


@quick
@given(pairs, st.integers(3, 14))
def test_offsets_point_at_the_characters_of_each_token(many: list[tuple[str, str]], max_len: int) -> None:
    batch = TOKENIZER(*map(list, zip(*many, strict=True)), max_len=max_len, offsets=True)
    offsets = batch.pop("offset_mapping")
    assert offsets.shape == (*batch["input_ids"].shape, 2)
    for text_pair, ids, segments, spans in zip(many, batch["input_ids"], batch["token_type_ids"], offsets, strict=True):
        for i, segment, (start, end) in zip(ids, segments, spans, strict=True):
            token, piece = TOKENIZER.tokens[i], text_pair[segment][start:end].lower()
            if i in TOKENIZER.special_ids - {TOKENIZER.unk_id}:
                assert (start, end) == (0, 0)
            else:
                assert piece == ("unknown" if i == TOKENIZER.unk_id else token.removeprefix("##"))


def test_a_single_text_is_a_batch_of_one() -> None:
    for name, values in TOKENIZER("the cat").items():
        assert np.array_equal(values, TOKENIZER(["the cat"])[name])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"texts": {"text": ["a"]}}, f"expected several texts, such as a list, {TABLE}"),
        ({"texts": pandas.DataFrame({"text": ["a"]})}, f"expected several texts, such as a list, {TABLE}"),
        ({"texts": ["a"], "text_pairs": b"a"}, "expected several text pairs, such as a list, found b'a'"),
        ({"texts": []}, "there is no text in the batch"),
        ({"texts": ["a", None]}, "text 1: expected a text, found None"),
        ({"texts": ["a", "\ud83d"]}, "text 1: holds half a surrogate pair, which stands for no character"),
        ({"texts": ["a"], "text_pairs": [3]}, "text pair 0: expected a text, found 3"),
        ({"texts": ["a"], "text_pairs": ["b", "c"]}, "expected as many text_pairs as texts, found 2 and 1"),
        ({"texts": ["a"], "max_len": 2}, "max_len: expected at least 3, found 2"),
        ({"texts": ["a"], "max_len": "8"}, "max_len: expected a whole number, found '8'"),
        (
            {"texts": ["a"], "padding": "max_length"},
            "padding: expected True, to the longest of the batch, or False, found 'max_length'",
        ),
    ],
)
def test_invalid_arguments_raise_a_clear_error(arguments: dict, message: str) -> None:
    with pytest.raises(UserError) as caught:
        TOKENIZER(**arguments)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "encode: expected a text, found None"),
        (["a"], r"encode: expected a text, found \['a'\]"),
        ("a\ud83d", "encode: the text holds half a surrogate pair, which stands for no character"),
    ],
)
@pytest.mark.parametrize("kind", ["wordpiece", "sentencepiece"])
def test_invalid_text_cannot_be_encoded(kind: str, text: Any, message: str, tmp_path: Path) -> None:
    tokenizer: Tokenizer = TOKENIZER
    if kind == "sentencepiece":
        lines = ["the cat sees a dog", "a dog sees the cat in paris"] * 9
        tokenizer = train_sentencepiece(lines, vocab_size=20, lowercase=True, folder=tmp_path)
    with pytest.raises(UserError, match=message):
        tokenizer.encode(text)


def test_saving_where_a_file_exists_raises_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for save in (TOKENIZER.save, TOKENIZER.save_pretrained):
        with pytest.raises(UserError, match="file: there is a file of that name"):
            save(str(tmp_path / "file"))


def test_a_tokenizer_loads_from_the_folder_of_its_model(tmp_path: Path) -> None:
    model = ErnieModel(EncoderConfig(TOKENIZER.vocab_size, 8, 1, 1, 8))
    model.tokenizer = TOKENIZER
    model.save_pretrained(tmp_path / "run" / "model")
    TOKENIZER.save_pretrained(str(tmp_path / "alone"))
    places = ("run", "run/model", "run/model/tokenizer", "alone", "alone/vocab.txt")
    found = [ErnieTokenizer.from_pretrained(tmp_path / place) for place in places]
    assert all(first.fingerprint == second.fingerprint for first, second in pairwise([TOKENIZER, *found]))
    with pytest.raises(UserError, match="nowhere: there is no such folder"):
        ErnieTokenizer.from_pretrained(tmp_path / "nowhere")


def test_loading_and_calling_a_tokenizer_does_not_import_paddle(tmp_path: Path) -> None:
    TOKENIZER.save(tmp_path / "tokenizer")
    load = f"from ernie import ErnieTokenizer; ErnieTokenizer.from_pretrained({str(tmp_path)!r})(['the cat'])"
    done = python("-c", f"import sys; {load}; sys.exit('paddle' in sys.modules)")
    assert done.returncode == 0, done.stderr or "paddle was imported"


def test_a_batch_can_be_passed_to_the_model() -> None:
    model = ErnieModel(EncoderConfig(TOKENIZER.vocab_size, 8, 1, 1, 8))
    output = model(**TOKENIZER(["the cat", "a dog sees paris ."], ["in paris", ""]))
    assert output.pooler_output.shape == [2, 8]

"""A long text is encoded in parts, with the tokens and offsets of the whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ernie.text.tokenizer
from ernie.errors import UserError
from ernie.text.added import Added
from ernie.text.subword import SentencePiece
from ernie.text.tokenizer import Tokenizer
from ernie.text.train import train_sentencepiece, train_wordpiece
from ernie.text.wordpiece import WordPiece

TEXTS = ["The cat sat on the mat (again), with 12,345.67 other things.", "我们今天去北京，你好世界。", "naïve é"] * 20


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> list[Tokenizer]:
    def folder() -> Path:
        return tmp_path_factory.mktemp("tokenizer")

    words = train_wordpiece(TEXTS, vocab_size=120, lowercase=True, folder=folder())
    added = {7: Added(words.tokens[7], single_word=True), 8: Added(words.tokens[8], normalized=True)}
    return [
        words,
        WordPiece(words.tokens, False, False, False),
        WordPiece(words.tokens, added=added),
        WordPiece(words.tokens, added={7: Added(words.tokens[7], lstrip=True, rstrip=True)}),
        *(
            train_sentencepiece(TEXTS, vocab_size=50, lowercase=lowercase, folder=folder(), model_type=kind)
            for lowercase in (True, False)
            for kind in ("unigram", "bpe")
        ),
    ]


LETTERS = "the cat mat,.(1)é ïÉ  \t\n我们今天，。\u0301\u3099\xa0\u200b\u3000½ﬁ_☃"


@settings(max_examples=400, deadline=None)
@given(text=st.text(st.sampled_from(LETTERS), max_size=60), size=st.integers(1, 12))
def test_the_parts_of_a_text_have_the_tokens_and_offsets_of_the_whole(
    tokenizers: list[Tokenizer], text: str, size: int
) -> None:
    for tokenizer in tokenizers:
        whole = tokenizer.encode_whole(text)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ernie.text.tokenizer, "_LONG", size)
            found = tokenizer.encode(text)
        assert found.ids.tolist() == whole.ids.tolist()
        np.testing.assert_array_equal(found.offsets, whole.offsets)


def test_long_texts_are_encoded_in_parts(tokenizers: list[Tokenizer], monkeypatch: pytest.MonkeyPatch) -> None:
    text = "The cat sat. " * 40_000
    for tokenizer in (tokenizers[0], tokenizers[4]):
        sizes: list[int] = []
        encode = tokenizer.encode_whole
        monkeypatch.setattr(tokenizer, "encode_whole", lambda part, e=encode, s=sizes: s.append(len(part)) or e(part))
        ids = tokenizer.encode(text).ids
        assert max(sizes) < 110_000
        assert len(sizes) == 6 if isinstance(tokenizer, SentencePiece) else len(sizes) >= 5
        assert len(ids) == 40_000 * len(encode("The cat sat. ").ids)


@settings(max_examples=100, deadline=None)
@given(text=st.text(st.sampled_from(LETTERS), max_size=60), pair=st.text(st.sampled_from(LETTERS), max_size=60))
def test_truncated_batches_of_long_texts_are_those_of_the_whole_texts(
    tokenizers: list[Tokenizer], text: str, pair: str
) -> None:
    for tokenizer in (tokenizers[0], tokenizers[4]):
        for max_len in (3, 6, 11):
            whole = tokenizer([text, pair], [pair, text], max_len=max_len, offsets=True)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(ernie.text.tokenizer, "_LONG", 4)
                found = tokenizer([text, pair], [pair, text], max_len=max_len, offsets=True)
            for name, values in whole.items():
                np.testing.assert_array_equal(found[name], values)


def test_a_truncated_batch_reads_no_further_than_it_needs(
    tokenizers: list[Tokenizer], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    encode = tokenizers[0].encode_whole
    monkeypatch.setattr(tokenizers[0], "encode_whole", lambda part: sizes.append(len(part)) or encode(part))
    tokenizers[0]("The cat sat. " * 100_000, max_len=32)
    assert sum(sizes) < 110_000


def test_a_lone_surrogate_far_into_a_text_is_an_error(tokenizers: list[Tokenizer]) -> None:
    for tokenizer in tokenizers:
        with pytest.raises(UserError, match="surrogate"):
            tokenizer.encode("cat " * 40_000 + "\ud800")


PARTS = ["a" * 1200, "É" * 1500, "1" * 1100 + "\u0301", "ก" * 1000, "ab" * 30, " ", ",", "我", "\u2e3a", "☃", "x"]


@settings(max_examples=100, deadline=None)
@given(parts=st.lists(st.sampled_from(PARTS), max_size=8))
def test_the_inside_of_a_very_long_word_changes_nothing(tokenizers: list[Tokenizer], parts: list[str]) -> None:
    text = "".join(parts)
    for tokenizer in tokenizers[:4]:
        assert isinstance(tokenizer, WordPiece)
        plain = tokenizer._encode(text)
        found = tokenizer.encode_whole(text)
        assert found.ids.tolist() == plain.ids.tolist()
        np.testing.assert_array_equal(found.offsets, plain.offsets)
        if not tokenizer.added:
            assert [i for unit in tokenizer.split(text) for i in tokenizer.pieces(unit)] == plain.ids.tolist()


@pytest.mark.parametrize("text", ["a" * 300_000, "ab+/" * 75_000, "...,," * 50_000, "我" * 300_000, "नमस्ते" * 50_000])
def test_of_a_text_without_spaces_the_engines_get_no_more_than_they_need(
    tokenizers: list[Tokenizer], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tokenizer in (tokenizers[0], tokenizers[2], tokenizers[6]):
        sizes: list[int] = []
        name = "_encode" if isinstance(tokenizer, WordPiece) else "encode_whole"
        encode = getattr(tokenizer, name)
        with monkeypatch.context() as patch:
            patch.setattr(tokenizer, name, lambda part, e=encode, s=sizes: s.append(len(part)) or e(part))
            found = tokenizer.encode(text, 8).ids
        assert max(sizes) <= 120_001
        assert found[:8].tolist() == tokenizer.encode_whole(text[:5_000]).ids[:8].tolist()

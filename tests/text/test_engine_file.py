"""The `tokenizer.json` of a published folder yields the same tokenizer as its vocabulary."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from helpers import vocabulary
from tokenizers import Tokenizer as Engine
from tokenizers import models

from ernie.errors import UserError
from ernie.text.load import load_tokenizer
from ernie.text.wordpiece import make_engine

TOKENIZER = vocabulary("The cat sees Paris .", "the", "##s", lowercase=False)


@pytest.mark.parametrize("lowercase", [True, False])
def test_a_folder_may_hold_only_the_engine_file(lowercase: bool, tmp_path: Path) -> None:
    ids = {token: i for i, token in enumerate(TOKENIZER.tokens)}
    make_engine(models.WordPiece(ids, unk_token="[UNK]"), lowercase).save(str(tmp_path / "tokenizer.json"))
    found = load_tokenizer(tmp_path)
    assert found.tokens == TOKENIZER.tokens
    assert found.lowercase == lowercase
    expected = Engine.from_file(str(tmp_path / "tokenizer.json")).encode(
        "The cat sees paris.", add_special_tokens=False
    )
    assert found.encode("The cat sees paris.").ids.tolist() == expected.ids
    assert load_tokenizer(tmp_path / "tokenizer.json").fingerprint == found.fingerprint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        pytest.param("[" * 100_000, "is not JSON", id="nested"),
        ("[]", "expected an object"),
        ("{}", "is not a WordPiece tokenizer; no other kind"),
        (json.dumps({"model": {"type": "BPE", "vocab": {}}}), "is not a WordPiece tokenizer; no other kind"),
        (json.dumps({"model": {"vocab": {"a": 0, "b": 2}}}), "its ids are not the numbers from 0 to 1"),
        (json.dumps({"model": {"vocab": {"a": 0}}}), r"the vocabulary lacks \[PAD\]"),
    ],
)
def test_an_unusable_file_is_named_in_the_error(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    with pytest.raises(UserError, match=rf"tokenizer\.json: {message}"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"normalizer": {"type": "Sequence", "normalizers": []}}, "does not normalize and split text as BERT's does"),
        ({"normalizer": None}, "does not normalize and split text as BERT's does"),
        ({"pre_tokenizer": {"type": "WhitespaceSplit"}}, "does not normalize and split text as BERT's does"),
        ({"pre_tokenizer": None}, "does not normalize and split text as BERT's does"),
        (
            {"normalizer": {"type": "BertNormalizer", "lowercase": True, "strip_accents": False}},
            "strip_accents: accents are",
        ),
    ],
)
def test_text_that_is_prepared_in_another_way_is_rejected(parts: dict, message: str, tmp_path: Path) -> None:
    vocab = {token: i for i, token in enumerate(TOKENIZER.tokens)}
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocab}, **parts}))
    with pytest.raises(UserError, match=message):
        load_tokenizer(tmp_path)


def test_a_malformed_vocabulary_raises_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": ["a", "b"]}}))
    with pytest.raises(UserError, match="does not name the id of each token"):
        load_tokenizer(tmp_path)

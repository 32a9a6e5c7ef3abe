"""The `tokenizer.json` of a published folder yields the same tokenizer as its vocabulary."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path

import pytest
from support.helpers import vocabulary
from tokenizers import Tokenizer as Engine
from tokenizers import models

from ernie.errors import Remark, UserError
from ernie.text.load import load_tokenizer, read_tokenizer_files
from ernie.text.wordpiece import SPECIAL_TOKENS, WordPiece, make_engine

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
        ({"normalizer": {"type": "BertNormalizer", "clean_text": False}}, "does not normalize and split text"),
        ({"model": {"continuing_subword_prefix": "@@"}}, "its continuing_subword_prefix is '@@', that of BERT's '##'"),
        ({"model": {"max_input_chars_per_word": 50}}, "its max_input_chars_per_word is 50, that of BERT's 100"),
    ],
)
def test_text_that_is_prepared_in_another_way_is_rejected(parts: dict, message: str, tmp_path: Path) -> None:
    vocab = {token: i for i, token in enumerate(TOKENIZER.tokens)}
    parts = {**parts, "model": {"vocab": vocab, **parts.get("model", {})}}
    (tmp_path / "tokenizer.json").write_text(json.dumps(parts))
    with pytest.raises(UserError, match=message):
        load_tokenizer(tmp_path)


def test_a_malformed_vocabulary_raises_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps({"model": {"vocab": ["a", "b"]}}))
    with pytest.raises(UserError, match="does not name the id of each token"):
        load_tokenizer(tmp_path)


def write_both(folder: Path, tokens: list[str], ids: dict[str, int], **parts: object) -> None:
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": ids}, **parts}), encoding="utf-8")


def numbered_ids(*more: str) -> dict[str, int]:
    return {token: i for i, token in enumerate([*TOKENIZER.tokens, *more])}


@pytest.mark.parametrize(
    ("ids", "difference", "size"),
    [
        (numbered_ids("covid19"), "only tokenizer.json has 'covid19'; tokenizer.json is used, as by transformers", 1),
        (numbered_ids(*"ABCDE"), "only tokenizer.json has 'A', 'B', 'C' and 2 more; tokenizer.json is used", 5),
        (numbered_ids() | {"the": 11, "##s": 10}, "'the' has the id 10 in one and 11 in the other", 0),
        ({t: i for t, i in numbered_ids().items() if t != "##s"}, "only vocab.txt has '##s'", -1),
    ],
)
def test_a_vocabulary_and_a_tokenizer_json_that_disagree_are_noted(
    ids: dict[str, int], difference: str, size: int, tmp_path: Path
) -> None:
    write_both(tmp_path, TOKENIZER.tokens, ids)
    with pytest.warns(Remark, match=f"its vocab.txt and tokenizer.json disagree: {re.escape(difference)}"):
        found = load_tokenizer(tmp_path)
    assert found.vocab_size == TOKENIZER.vocab_size + size
    assert found.tokens == sorted(ids, key=ids.get)  # type: ignore[arg-type]


def test_the_vocabulary_is_used_if_the_model_has_no_place_for_the_tokens_of_tokenizer_json(tmp_path: Path) -> None:
    write_both(tmp_path, TOKENIZER.tokens, numbered_ids("covid19"))
    found, (note,) = read_tokenizer_files(tmp_path, TOKENIZER.vocab_size)
    assert found.tokens == TOKENIZER.tokens
    assert note.endswith(
        "only tokenizer.json has 'covid19'; vocab.txt is used, as the other has more tokens than the model"
    )


def test_files_that_agree_need_no_note(tmp_path: Path) -> None:
    """A duplicate line, blank lines and spaces at the ends make no difference."""
    tokens = [*TOKENIZER.tokens, "dog", "dog"]
    ids = {token: i for i, token in enumerate(tokens)} | {"": len(tokens) + 1}
    write_both(tmp_path, [*tokens[:-1], "dog ", "", ""], ids)
    found, notes = read_tokenizer_files(tmp_path)
    assert (found.tokens, notes) == (tokens, [])


def test_a_tokenizer_json_of_another_kind_is_noted_beside_a_vocabulary(tmp_path: Path) -> None:
    write_both(tmp_path, TOKENIZER.tokens, numbered_ids(), pre_tokenizer={"type": "WhitespaceSplit"})
    with pytest.warns(
        Remark, match=r"its tokenizer.json is not used, but its vocab.txt \(.*does not normalize and split"
    ):
        assert load_tokenizer(tmp_path).tokens == TOKENIZER.tokens


@pytest.mark.parametrize("lowercase", [True, False])
@pytest.mark.parametrize("strip_accents", [None, True, False])
@pytest.mark.parametrize("chinese", [True, False])
def test_text_is_read_as_the_normalizer_of_either_file_says(
    lowercase: bool, strip_accents: bool | None, chinese: bool, tmp_path: Path
) -> None:
    tokens = [*TOKENIZER.tokens, "É", "é", "E", "e", "中", "中文", "が", "か"]
    ids = {token: i for i, token in enumerate(tokens)}
    engine = make_engine(models.WordPiece(ids, unk_token="[UNK]"), lowercase, strip_accents, chinese)
    text = "É e\u0301 The 中文 が か\u3099"
    expected = engine.encode(text, add_special_tokens=False).ids
    engine.save(str(tmp_path / "tokenizer.json"))
    found = [load_tokenizer(tmp_path)]
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.txt").write_text("\n".join(tokens), encoding="utf-8")
    settings = {"do_lower_case": lowercase, "strip_accents": strip_accents, "tokenize_chinese_chars": chinese}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    found.append(load_tokenizer(tmp_path))
    found[1].save(tmp_path / "saved")
    found += [load_tokenizer(tmp_path / "saved"), pickle.loads(pickle.dumps(found[1]))]
    for tokenizer in found:
        assert tokenizer.encode(text).ids.tolist() == expected
        assert [i for unit in tokenizer.split(text) for i in tokenizer.pieces(unit)] == expected
        assert tokenizer.fingerprint == found[0].fingerprint


def test_the_fingerprint_of_the_usual_settings_is_that_of_older_versions() -> None:
    assert WordPiece(SPECIAL_TOKENS).fingerprint == "083a056d069e8a99852bd92d37b9108e"
    assert len({WordPiece(SPECIAL_TOKENS, True, strips).fingerprint for strips in (None, True, False)}) == 3


@pytest.mark.parametrize("key", ["do_lower_case", "strip_accents", "tokenize_chinese_chars"])
def test_a_setting_that_is_not_true_or_false_is_named(key: str, tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join(SPECIAL_TOKENS))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({key: "yes"}))
    with pytest.raises(UserError, match=rf"tokenizer_config\.json: {key}: expected true.* false"):
        load_tokenizer(tmp_path)

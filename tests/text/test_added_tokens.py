"""Added tokens, such as entity markers, are kept whole; the model's own special tokens never are."""

from __future__ import annotations

import json
import pickle
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, models

from ernie.errors import Remark
from ernie.text.added import SPECIAL_NAMES, Added
from ernie.text.load import load_tokenizer, read_tokenizer_files
from ernie.text.vocabulary import check_vocabulary
from ernie.text.wordpiece import SPECIAL_KEYS, SPECIAL_TOKENS, WordPiece, make_engine

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789[]<>_-中"
TOKENS = [*SPECIAL_TOKENS, "[E1]", "covid19", "new york", *LETTERS, *(f"##{letter}" for letter in LETTERS)]
MARKER = TOKENS.index("[E1]")


def write(folder: Path, **files: Any) -> Path:
    """Write a vocabulary and JSON files, given by their names without the ending."""
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS), encoding="utf-8")
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def shown(tokenizer: WordPiece, text: str) -> list[tuple[str, str]]:
    found = tokenizer.encode(text)
    return [(tokenizer.tokens[i], text[a:b]) for i, (a, b) in zip(found.ids, found.offsets, strict=True)]


ENTRY = {"content": "[E1]", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}


@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer_config": {"added_tokens_decoder": {str(MARKER): {**ENTRY, "special": True}}}},
        {"tokenizer_config": {"additional_special_tokens": ["[E1]"]}},
        {"tokenizer_config": {"extra_special_tokens": {"entity": "[E1]"}}},
        {"special_tokens_map": {"additional_special_tokens": [ENTRY], "mask_token": "[MASK]"}},
        {"added_tokens": {"[E1]": MARKER}},
        {
            "tokenizer": {
                "normalizer": {"type": "BertNormalizer", "lowercase": True},
                "model": {"vocab": {token: i for i, token in enumerate(TOKENS)}},
                "added_tokens": [{"id": MARKER, "special": True, **ENTRY}, {"id": 4, "content": "[MASK]"}],
            }
        },
    ],
    ids=["decoder", "additional", "extra", "map", "added", "engine"],
)
def test_a_marker_within_the_vocabulary_is_kept_whole_whichever_file_names_it(
    files: dict[str, Any], tmp_path: Path
) -> None:
    tokenizer = load_tokenizer(write(tmp_path, **files))
    assert isinstance(tokenizer, WordPiece)
    assert shown(tokenizer, "a [E1]b[MASK]") == [
        ("a", "a"), ("[E1]", "[E1]"), ("b", "b"), ("[", "["), ("m", "M"), ("##a", "A"), ("##s", "S"), ("##k", "K"),
        ("]", "]"),
    ]  # fmt: skip
    tokenizer.save(tmp_path / "saved")
    copies = load_tokenizer(tmp_path / "saved"), pickle.loads(pickle.dumps(tokenizer))
    for copy in copies:
        assert copy.fingerprint == tokenizer.fingerprint
        assert copy.encode("a [E1]b[MASK]").ids.tolist() == tokenizer.encode("a [E1]b[MASK]").ids.tolist()
    assert tokenizer.fingerprint != WordPiece(TOKENS).fingerprint
    assert tokenizer.surface(tokenizer.split("a [E1]b")) == ["a", "[E1]", "b"]


SPECIAL = {"pad_token": "[E1]", "unk_token": "covid19", "mask_token": "-"}


@pytest.mark.parametrize(
    "files",
    [
        {"tokenizer_config": SPECIAL},
        {"special_tokens_map": {key: {"content": token, "lstrip": True} for key, token in SPECIAL.items()}},
        {"special_tokens_map": {"unk_token": "a"}, "tokenizer_config": {**SPECIAL, "bos_token": "b"}},
        {
            "tokenizer_config": {"pad_token": "[E1]", "mask_token": "-"},
            "tokenizer": {
                "normalizer": {"type": "BertNormalizer", "lowercase": True},
                "model": {"vocab": {token: i for i, token in enumerate(TOKENS)}, "unk_token": "covid19"},
                "added_tokens": [{"id": MARKER, "special": True, **ENTRY}],
            },
        },
    ],
    ids=["config", "map", "both", "engine"],
)
def test_the_models_own_special_tokens_have_the_names_that_its_files_say(files: dict[str, Any], tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write(tmp_path, **files))
    tokenizer.save(tmp_path / "saved")
    for each in (tokenizer, load_tokenizer(tmp_path / "saved"), pickle.loads(pickle.dumps(tokenizer))):
        ids = each.pad_id, each.unk_id, each.cls_id, each.sep_id, each.mask_id
        assert [each.tokens[i] for i in ids] == ["[E1]", "covid19", "[CLS]", "[SEP]", "-"]
        assert shown(each, "\u4e2e [E1]")[:2] == [("covid19", "\u4e2e"), ("[", "[")]  # type: ignore[arg-type]
        assert each.fingerprint == tokenizer.fingerprint != WordPiece(TOKENS).fingerprint


def test_a_vocabulary_with_other_names_of_special_tokens_lacks_none(tmp_path: Path) -> None:
    named = dict(zip(SPECIAL_KEYS, ("<pad>", "<unk>", "<s>", "</s>", "<mask>"), strict=True))
    write(tmp_path, tokenizer_config=named)
    (tmp_path / "vocab.txt").write_text("\n".join([*named.values(), "a"]))
    assert check_vocabulary(tmp_path) == []
    (tmp_path / "tokenizer_config.json").unlink()
    assert check_vocabulary(tmp_path) == [f"{tmp_path}/vocab.txt: lacks {', '.join(SPECIAL_TOKENS)}"]


def test_a_special_token_that_the_vocabulary_lacks_is_named(tmp_path: Path) -> None:
    tokenizer, notes = read_tokenizer_files(write(tmp_path, tokenizer_config={"mask_token": "<mask>"}))
    assert notes == ["its mask_token is <mask>, which the vocabulary lacks; [MASK] stands for it"]
    assert tokenizer.tokens[tokenizer.mask_id] == "[MASK]"


def test_special_markers_are_not_among_the_ordinary_tokens(tmp_path: Path) -> None:
    special, plain = (WordPiece(TOKENS, added={MARKER: Added("[E1]", special=value)}) for value in (True, False))
    assert MARKER not in special.ordinary_ids
    assert MARKER in plain.ordinary_ids


FLAGS = [
    dict(zip(("single_word", "lstrip", "rstrip", "normalized"), row, strict=True))
    for row in product((False, True), repeat=4)
]
TEXT = st.lists(
    st.sampled_from(
        [
            "[E1]",
            "[e1]",
            "[É1]",
            "covid19",
            "COVID19",
            "new york",
            " ",
            "  ",
            "_",
            "-",
            "a",
            "É",
            "中",
            "\0",
            "\u0301",
            "\xad",
            "😀",
        ]
    ),
    max_size=8,
).map("".join)


@settings(max_examples=600, deadline=None)
@given(
    text=TEXT,
    flags=st.lists(st.sampled_from(FLAGS), min_size=3, max_size=3),
    lowercase=st.booleans(),
    chinese=st.booleans(),
)
def test_added_tokens_match_where_those_of_the_tokenizers_library_do(
    text: str, flags: list[dict[str, bool]], lowercase: bool, chinese: bool
) -> None:
    added = {i: Added(TOKENS[i], **own, special=False) for i, own in zip((5, 6, 7), flags, strict=True)}
    ours = WordPiece(TOKENS, lowercase, None, chinese, added)
    ids = {token: i for i, token in enumerate(TOKENS)}
    theirs = make_engine(models.WordPiece(ids, unk_token="[UNK]"), lowercase, None, chinese)
    theirs.add_tokens([AddedToken(TOKENS[i], **own) for i, own in zip((5, 6, 7), flags, strict=True)])
    expected = theirs.encode(text, add_special_tokens=False)
    found = ours.encode(text)
    assert found.ids.tolist() == expected.ids
    assert found.offsets.shape == (len(expected.ids), 2)
    if "\u0301" not in text:  # ours takes accents into the token of their letter
        assert found.offsets.tolist() == [list(span) for span in expected.offsets]
    assert [i for unit in ours.split(text) for i in ours.pieces(unit)] == expected.ids == ours.ids(text).tolist()


@settings(deadline=None)
@given(text=st.lists(st.sampled_from([*sorted(SPECIAL_NAMES), "[E1]", "a", " "]), max_size=6).map("".join))
def test_no_text_has_the_models_own_special_tokens(text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("own")
    decoder = {str(i): {**ENTRY, "content": token, "special": True} for i, token in enumerate(TOKENS[:6])}
    tokenizer = load_tokenizer(write(folder, tokenizer_config={"added_tokens_decoder": decoder}))
    own = {tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id}
    ids = tokenizer.encode(text).ids
    assert not own & set(ids.tolist())
    assert (ids == MARKER).sum() == text.count("[E1]")


def test_added_tokens_that_continue_the_vocabulary_get_their_ids(tmp_path: Path) -> None:
    size = len(TOKENS)
    folder = write(tmp_path, added_tokens={"<e2>": size + 1, "<e1>": size, "<e9>": size + 7})
    with pytest.warns(Remark, match=r"its tokenizer has 1 more token \(<e9>\), which ours does not know"):
        tokenizer = load_tokenizer(folder)
    assert tokenizer.tokens[size:] == ["<e1>", "<e2>"]
    assert tokenizer.encode("a<e2> <e1>").ids.tolist() == [TOKENS.index("a"), size + 1, size]
    tokenizer.save(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").fingerprint == tokenizer.fingerprint


def test_added_tokens_beyond_the_vocabulary_are_no_parts_of_words(tmp_path: Path) -> None:
    theirs = make_engine(models.WordPiece({token: i for i, token in enumerate(TOKENS)}, unk_token="[UNK]"), True)
    theirs.add_tokens([AddedToken("abc", single_word=True, normalized=False)])
    theirs.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path)
    assert isinstance(tokenizer, WordPiece) and tokenizer.tokens[len(TOKENS) :] == ["abc"]
    tokenizer.save(tmp_path / "saved")
    for copy in (tokenizer, load_tokenizer(tmp_path / "saved"), pickle.loads(pickle.dumps(tokenizer))):
        assert copy.fingerprint == tokenizer.fingerprint
        for text in ("abc", "abcd", "Abc", "dabc abc!", "a"):
            expected = theirs.encode(text, add_special_tokens=False).ids
            assert copy.encode(text).ids.tolist() == expected
            assert [i for unit in copy.split(text) for i in copy.pieces(unit)] == expected


def test_added_tokens_that_the_model_has_no_embedding_for_are_left_out_and_named(tmp_path: Path) -> None:
    size = len(TOKENS)
    folder = write(tmp_path, added_tokens={"<e1>": size, "<e2>": size + 1})
    tokenizer, (note,) = read_tokenizer_files(folder, size + 1)
    assert tokenizer.tokens[size:] == ["<e1>"]
    assert note == "its tokenizer has 1 more token (<e2>), which ours does not know"


def test_an_added_token_with_another_id_within_the_vocabulary_is_left_out_and_named(tmp_path: Path) -> None:
    tokenizer, (note,) = read_tokenizer_files(write(tmp_path, added_tokens={"[E1]": MARKER + 1}))
    assert "([E1])" in note
    assert MARKER not in tokenizer.encode("[E1]").ids


def test_entries_that_describe_no_token_are_passed_over(tmp_path: Path) -> None:
    odd = {"x": ENTRY, "7": 7, "8": {"content": ""}, "9": {"content": 3}, "10": None}
    folder = write(tmp_path, tokenizer_config={"added_tokens_decoder": odd, "additional_special_tokens": "[E1]"})
    assert read_tokenizer_files(folder)[1] == []
    assert MARKER not in load_tokenizer(folder).encode("[E1]").ids


def test_batches_have_the_offsets_of_added_tokens() -> None:
    tokenizer = WordPiece(TOKENS, added={MARKER: Added("[E1]", lstrip=True)})
    batch = tokenizer(["a  [E1] b"], offsets=True)
    assert batch["input_ids"][0].tolist()[2] == MARKER
    np.testing.assert_array_equal(batch["offset_mapping"][0][1:4], [[0, 1], [1, 7], [8, 9]])

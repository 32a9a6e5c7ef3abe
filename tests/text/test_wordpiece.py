"""WordPiece: units, offsets, cleaning, files."""

from __future__ import annotations

import pickle
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.errors import UserError
from ernie.model.published.vocabulary import read_tokenizer
from ernie.text.load import load_tokenizer
from ernie.text.vocabulary import check_vocabulary
from ernie.text.wordpiece import SPECIAL_TOKENS, WordPiece

WORDS = [
    "the",
    "cat",
    "sat",
    "un",
    "##want",
    "##ed",
    "resume",
    "i",
    "##s",
    "中",
    "文",
    "!",
    ",",
    "'",
    "t",
    "don",
    "a",
    "b",
]
LETTERS = [*"cdefghjklmnopqrsuvwxyz", *(f"##{letter}" for letter in "abcdefghijklmnopqrtuvwxyz")]


@pytest.fixture(scope="module")
def uncased() -> WordPiece:
    return WordPiece([*SPECIAL_TOKENS, *WORDS, *LETTERS])


@pytest.fixture(scope="module")
def cased() -> WordPiece:
    return WordPiece([*SPECIAL_TOKENS, *WORDS, *LETTERS, "The", "é"], lowercase=False)


# All of Unicode, with more weight on the characters that cleaning, splitting and lower-casing treat specially.
_ODD = (
    "\t\n\r\x00\x1c\x7f\x85\xa0\xad\u0301\u0338\u00df\u0130\u01c5\u1e9e\u200b\u200d\u2028\u2029\u2260\u3000\ufeff\ufffd"
    "\u4e2d\u6587\U00020000😀“”—…_-'A bÉ"
)
TEXT = st.text(alphabet=st.one_of(st.sampled_from(_ODD), st.characters(exclude_categories=["Cs"])), max_size=30)


@settings(max_examples=400)
@given(text=TEXT, lowercase=st.booleans())
def test_the_pieces_of_the_units_are_the_encoding_of_the_text(
    uncased: WordPiece, cased: WordPiece, text: str, lowercase: bool
) -> None:
    tokenizer = uncased if lowercase else cased
    ids = tokenizer.encode(text).ids.tolist()
    assert [i for unit in tokenizer.split(text) for i in tokenizer.pieces(unit)] == ids == tokenizer.ids(text).tolist()


def test_units_are_words_punctuation_marks_and_single_chinese_characters(uncased: WordPiece) -> None:
    found = uncased.split("“Don't!” she\u200b said — 中文，OK")
    assert found == ["“", "Don", "'", "t", "!", "”", "she", "said", "—", "中", "文", "，", "OK"]


@given(text=TEXT)
def test_offsets_never_decrease_and_stay_inside_the_text(uncased: WordPiece, text: str) -> None:
    encoding = uncased.encode(text)
    assert len(encoding.ids) == len(encoding.offsets)
    last = 0
    for start, end in encoding.offsets.tolist():
        assert last <= start <= end <= len(text)
        last = start


def test_offsets_point_at_the_characters_of_each_token_also_around_unknown_ones(uncased: WordPiece) -> None:
    text = "The ☃☃ Résumé, unwanted 中文 日 don't"
    encoding = uncased.encode(text)
    found = [(uncased.tokens[i], text[a:b]) for i, (a, b) in zip(encoding.ids, encoding.offsets, strict=True)]
    assert found == [
        ("the", "The"), ("[UNK]", "☃☃"), ("resume", "Résumé"), (",", ","), ("un", "un"), ("##want", "want"),
        ("##ed", "ed"), ("中", "中"), ("文", "文"), ("[UNK]", "日"), ("don", "don"), ("'", "'"), ("t", "t"),
    ]  # fmt: skip


@given(text=TEXT)
def test_a_letter_and_its_accents_share_a_token_whether_composed_or_not(uncased: WordPiece, text: str) -> None:
    composed, decomposed = (unicodedata.normalize(form, f"{text} résumé") for form in ("NFC", "NFD"))
    words = [
        [unicodedata.normalize("NFC", variant[start:end]) for start, end in uncased.encode(variant).offsets.tolist()]
        for variant in (composed, decomposed)
    ]
    assert words[1][-1] == "résumé"
    assert words[0] == words[1]


def test_a_cased_vocabulary_keeps_capitals_and_accents(cased: WordPiece) -> None:
    assert [cased.tokens[i] for i in cased.encode("The é").ids] == ["The", "é"]


@pytest.mark.parametrize(
    ("text", "decoded"),
    [
        ("Don't", "don't"),
        ("it's o'clock, they'll say we've", "it's o'clock, they'll say we've"),
        ("rock'n'roll", "rock'n'roll"),
        ("l'ami d’or qu'il j'ai", "l'ami d’or qu'il j'ai"),
        ("say 'no' loudly", "say ' no ' loudly"),  # quotes: which side had a space is unknown
        ("he said, 'stop'", "he said, ' stop '"),
    ],
)
def test_decoding_rejoins_words_split_at_an_apostrophe(text: str, decoded: str) -> None:
    letters = "abcdefghijklmnopqrstuvwxyz'’,"
    tokenizer = WordPiece([*SPECIAL_TOKENS, *letters, *(f"##{letter}" for letter in letters)])
    assert tokenizer.decode(tokenizer.encode(text).ids) == decoded


@pytest.mark.parametrize("text", ["你好，世界。", "京都へ行く", "他在 paddle 上学习"])
def test_decoding_adds_no_spaces_in_scripts_without_them(text: str) -> None:
    tokenizer = WordPiece([*SPECIAL_TOKENS, *text.replace(" ", ""), "paddle"])
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        ([[2, 3], [2]], r"^decode: expected whole numbers, the token ids of one text, found \[\[2, 3\], \[2\]\]$"),
        (np.zeros((2, 3), np.int64), r"^decode: expected whole numbers, the token ids of one text, found array"),
        (7, r"^decode: expected whole numbers, the token ids of one text, found 7$"),
        ([1.5], r"^decode: expected whole numbers, the token ids of one text, found \[1\.5\]$"),
        ([0, -1], r"^decode: -1 is no token id: the vocabulary has \d+ tokens, numbered from 0$"),
        ([99_999], r"^decode: 99999 is no token id: the vocabulary has \d+ tokens, numbered from 0$"),
    ],
)
def test_decoding_invalid_ids_raises_a_clear_error(uncased: WordPiece, ids: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        uncased.decode(ids)


def test_decoding_gives_readable_text(uncased: WordPiece) -> None:
    ids = [uncased.cls_id, *uncased.encode("the unwanted cat").ids.tolist(), uncased.sep_id]
    assert uncased.decode(ids) == "the unwanted cat"


def test_a_saved_tokenizer_loads_unchanged(cased: WordPiece, tmp_path: Path) -> None:
    cased.save(tmp_path / "saved")
    loaded = load_tokenizer(tmp_path / "saved")
    assert loaded.fingerprint == cased.fingerprint
    assert not loaded.lowercase


def test_a_tokenizer_can_be_pickled(uncased: WordPiece) -> None:
    copy = pickle.loads(pickle.dumps(uncased))
    assert copy.encode("unwanted cat").ids.tolist() == uncased.encode("unwanted cat").ids.tolist()


def test_a_duplicate_entry_shifts_no_id_and_is_reported_with_both_lines(tmp_path: Path) -> None:
    entries = [*SPECIAL_TOKENS, "cat", "the", "cat", "sat"]
    file = tmp_path / "vocab.txt"
    file.write_text("\n".join(entries) + "\n", encoding="utf-8")
    tokenizer = load_tokenizer(file)
    assert tokenizer.tokens == entries
    assert tokenizer.encode("the cat sat").ids.tolist() == [6, 7, 8]
    (finding,) = check_vocabulary(file)
    assert ":8: 'cat' appears twice, first in line 6" in finding


def test_published_files_with_an_id_after_a_tab_are_read(tmp_path: Path) -> None:
    file = tmp_path / "vocab.txt"
    file.write_text("".join(f"{token}\t{i}\n" for i, token in enumerate([*SPECIAL_TOKENS, "cat"])), encoding="utf-8")
    assert load_tokenizer(file).encode("cat").ids.tolist() == [5]


def test_a_published_folder_says_whether_it_lower_cases(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, "Cat"]), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}', encoding="utf-8")
    assert load_tokenizer(tmp_path).encode("Cat").ids.tolist() == [5]


@pytest.mark.parametrize(("capitals", "lowercase"), [(0, True), (3, True), (30, False)])
def test_a_vocabulary_with_few_capitals_lower_cases(tmp_path: Path, capitals: int, lowercase: bool) -> None:
    words = [*(f"Name{n}" for n in range(capitals)), *(f"word{n}" for n in range(400))]
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL_TOKENS, *words]), encoding="utf-8")
    assert WordPiece.read(tmp_path / "vocab.txt").lowercase == lowercase


def test_a_word_of_more_than_a_hundred_letters_is_unknown_as_in_the_original(uncased: WordPiece) -> None:
    assert len(uncased.encode("b" * 100).ids) == 100
    assert uncased.encode("b" * 101).ids.tolist() == [uncased.unk_id]


def test_capitals_in_a_lower_casing_vocabulary_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "vocab.txt"
    file.write_text("\n".join([*SPECIAL_TOKENS, "Cat", "dog"]), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": true}', encoding="utf-8")
    (finding,) = check_vocabulary(file)
    assert "1 of 7 entries hold capitals ('Cat')" in finding


def test_unreachable_entries_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "vocab.txt"
    entries = ["dog", "##s", "中", "!", "well-known", "##中", "##!", "café", "中文"]
    file.write_text("\n".join([*SPECIAL_TOKENS, *entries, "[unused1]"]), encoding="utf-8")
    (finding,) = check_vocabulary(file)
    assert "5 of 15 entries can never be produced ('##!', '##中', 'café', 'well-known', '中文')" in finding


def test_other_faults_of_a_vocabulary_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "vocab.txt"
    file.write_text("\n".join([*SPECIAL_TOKENS, "", "cat ", "e\u0301"]) + "\n", encoding="utf-8")
    findings = " ".join(check_vocabulary(file))
    for expected in (":6: is empty", "white space", "normal form NFC"):
        assert expected in findings


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b"cat\ndog\n", "lacks [PAD], [UNK], [CLS], [SEP], [MASK]"), (b"\xff\xfe", "is not UTF-8")],
)
def test_an_invalid_vocabulary_is_rejected_by_name(tmp_path: Path, content: bytes, expected: str) -> None:
    file = tmp_path / "vocab.txt"
    file.write_bytes(content)
    with pytest.raises(UserError) as error:
        load_tokenizer(file)
    assert str(file) in str(error.value)
    assert expected in str(error.value)


def test_the_error_of_a_missing_tokenizer_says_what_was_searched_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"neither a vocab\.txt nor one \.model file"):
        load_tokenizer(tmp_path)
    with pytest.raises(UserError, match="no such tokenizer"):
        load_tokenizer(tmp_path / "nowhere")


@pytest.mark.parametrize("end", ["\n\n\n", "\r\n\r\n", "\n  \n", ""])
@pytest.mark.parametrize("begin", ["", "\ufeff"])
def test_blank_lines_at_the_end_and_spaces_after_a_token_are_no_part_of_a_vocabulary(
    begin: str, end: str, tmp_path: Path
) -> None:
    tokens = [*SPECIAL_TOKENS, "cat", "", "dog"]
    lines = [*SPECIAL_TOKENS, "cat  ", "", "dog "]
    line_end = "\r\n" if "\r" in end else "\n"
    (tmp_path / "vocab.txt").write_bytes((begin + line_end.join(lines) + end).encode())
    assert load_tokenizer(tmp_path / "vocab.txt").tokens == tokens
    found, notes = read_tokenizer(tmp_path, len(tokens))  # as many as the model has, not more
    assert found is not None
    assert (found.tokens, notes) == (tokens, [])


def test_a_huge_vocabulary_is_refused_before_it_is_read_whole(tmp_path: Path) -> None:
    for name in ("vocab.txt", "tokenizer.json", "sentencepiece.model"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(10**9)  # a sparse file of zeros
        with pytest.raises(UserError, match=f"{name}: is larger than 64 MB, the most that is read of such a file"):
            load_tokenizer(tmp_path / name)
    (tmp_path / "vocab.txt").write_bytes(b"\n" * 6_000_000)
    with pytest.raises(UserError, match=r"vocab.txt: has more than 5,000,000 lines"):
        load_tokenizer(tmp_path / "vocab.txt")


@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json", "sentencepiece.model"])
def test_a_git_lfs_pointer_in_place_of_a_tokenizer_is_named_as_such(tmp_path: Path, name: str) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    (tmp_path / name).write_text(pointer, encoding="utf-8")
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(UserError, match=f"{name}: is a Git LFS pointer, .*: run git lfs pull"):
            load_tokenizer(path)
    with pytest.raises(UserError, match="Git LFS pointer"):
        read_tokenizer(tmp_path, 100)

"""Pronouncing dictionaries: read in the format of the CMU dictionary, and applied to texts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ernie.errors import UserError
from ernie.text.pronounce import read_dictionary, to_phonemes

CMU_LINES = """;;; a remark
SEVEN  S EH1 V AH0 N
READ  R EH1 D
READ(1)  R IY1 D

DON'T  D OW1 N T
"""


def test_a_word_has_the_phonemes_of_its_first_line(tmp_path: Path) -> None:
    (tmp_path / "cmu.dict").write_text(CMU_LINES, encoding="utf-8")
    found = read_dictionary(tmp_path / "cmu.dict")
    assert found == {"seven": "S EH1 V AH0 N", "read": "R EH1 D", "don't": "D OW1 N T"}


def test_the_variant_numbers_of_nltk_are_not_phonemes(tmp_path: Path) -> None:
    (tmp_path / "cmudict").write_text("ONE 1 W AH1 N\nONE 2 HH W AH1 N\nTWO 1\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"cmudict:3: the word 'TWO' has no phonemes"):
        read_dictionary(tmp_path / "cmudict")
    (tmp_path / "cmu").write_text("ONE 1 W AH1 N\nONE 2 HH W AH1 N\n", encoding="utf-8")
    assert read_dictionary(tmp_path / "cmu") == {"one": "W AH1 N"}


def test_unknown_words_and_other_characters_stay_unchanged() -> None:
    dictionary = {"seven": "S EH1 V", "don't": "D OW1"}
    assert to_phonemes("Seven, don’t say sevens 7!", dictionary) == "S EH1 V, D OW1 say sevens 7!"


def test_a_line_without_phonemes_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.dict").write_text("ONE  W AH1 N\nTWO\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"bad\.dict:2: the word 'TWO' has no phonemes"):
        read_dictionary(tmp_path / "bad.dict")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.dict: cannot be read as a dictionary"):
        read_dictionary(tmp_path / "none.dict")


def test_text_after_a_number_sign_is_a_comment(tmp_path: Path) -> None:
    (tmp_path / "cmudict.dict").write_text("aalborg AO1 L B AO0 R G # place, danish\n", encoding="utf-8")
    assert read_dictionary(tmp_path / "cmudict.dict") == {"aalborg": "AO1 L B AO0 R G"}


@pytest.mark.parametrize("comment", ["# a remark", "  # a remark", "#", "\t#remark"])
def test_a_line_may_be_only_a_comment(tmp_path: Path, comment: str) -> None:
    (tmp_path / "my.dict").write_text(f"{comment}\nA AH0\n#HASH-MARK  HH AE1 SH\n", encoding="utf-8")
    read_dictionary.cache_clear()
    assert read_dictionary(tmp_path / "my.dict") == {"a": "AH0", "#hash-mark": "HH AE1 SH"}


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("prefix", ["", "\ufeff"])
def test_a_byte_order_mark_and_windows_line_ends_are_ignored(tmp_path: Path, prefix: str, ending: str) -> None:
    lines = ["ONE  W AH1 N", ";;; a remark", "  ;;; one further in", "TWO\tT UW1", "", "ÉTÉ  EY1 T EY0"]
    (tmp_path / "my.dict").write_bytes((prefix + "".join(line + ending for line in lines)).encode())
    read_dictionary.cache_clear()
    assert read_dictionary(tmp_path / "my.dict") == {"one": "W AH1 N", "two": "T UW1", "été": "EY1 T EY0"}


def test_a_word_with_only_numbered_variants_takes_the_first(tmp_path: Path) -> None:
    (tmp_path / "my.dict").write_text("READ(2)  R IY1 D\nLEAD(1)  L EH1 D\nLEAD(2)  L IY1 D\nREAD  R EH1 D\n")
    assert read_dictionary(tmp_path / "my.dict") == {"lead": "L EH1 D", "read": "R EH1 D"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("SEVEN,S EH1 V AH0 N", "'SEVEN,S' is no word; expected WORD  P H O N E M E S"),
        ("SEVEN: S EH1 V AH0 N", "'SEVEN:' is no word"),
        ("SEVEN;S", "'SEVEN;S' is no word"),
        ("SEVEN|S EH1", "'SEVEN|S' is no word"),
        ("SEVEN = S EH1 V AH0 N", "the word 'SEVEN' has '=' among its phonemes"),
        ("SEVEN  S,EH1,V", "the word 'SEVEN' has 'S,EH1,V' among its phonemes"),
        ("seven\t0.99\t0.2\ts ɛ v", "the word 'seven' has '0.99' among its phonemes"),
        ("SEVEN", "the word 'SEVEN' has no phonemes"),
    ],
)
def test_a_line_in_another_format_is_named(tmp_path: Path, line: str, message: str) -> None:
    (tmp_path / "my.dict").write_text(f";;; mine\nONE  W AH1 N\n{line}\n", encoding="utf-8")
    read_dictionary.cache_clear()
    with pytest.raises(UserError, match=rf"my\.dict:3: {re.escape(message)}"):
        read_dictionary(tmp_path / "my.dict")


def test_words_may_contain_punctuation_and_digits(tmp_path: Path) -> None:
    written = ",COMMA  K AA1 M AH0\n;SEMI-COLON  S EH1\n:COLON  K OW1\nA.'S  EY1 Z\n3D  TH R IY2 D IY2\n"
    (tmp_path / "my.dict").write_text(written)
    assert set(read_dictionary(tmp_path / "my.dict")) == {",comma", ";semi-colon", ":colon", "a.'s", "3d"}


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_a_line_in_another_encoding_is_named_with_a_remedy(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "my.dict").write_bytes("A  AH0\nDÉJÀ  D EY2 ZH AA1\n".encode(encoding))
    read_dictionary.cache_clear()
    with pytest.raises(UserError, match=r"my\.dict:[12]: is not UTF-8 text; .*iconv -f latin1 -t utf-8"):
        read_dictionary(tmp_path / "my.dict")


def test_composed_and_decomposed_accents_are_the_same() -> None:
    assert to_phonemes("un e\u0301te\u0301", {"été": "EY1 T EY0"}) == "un EY1 T EY0"

"""Pronouncing dictionaries: read as the CMU dictionary is written, and put into texts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ernie.errors import UserError
from ernie.text.pronounce import pronounced, read_dictionary

WRITTEN = """;;; a remark
SEVEN  S EH1 V AH0 N
READ  R EH1 D
READ(1)  R IY1 D

DON'T  D OW1 N T
"""


def test_words_have_the_phonemes_of_their_first_line(tmp_path: Path) -> None:
    (tmp_path / "cmu.dict").write_text(WRITTEN, encoding="utf-8")
    found = read_dictionary(tmp_path / "cmu.dict")
    assert found == {"seven": "S EH1 V AH0 N", "read": "R EH1 D", "don't": "D OW1 N T"}


def test_the_numbers_by_which_nltk_tells_ways_to_say_a_word_apart_are_no_phonemes(tmp_path: Path) -> None:
    (tmp_path / "cmudict").write_text("ONE 1 W AH1 N\nONE 2 HH W AH1 N\nTWO 1\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"cmudict:3: the word 'TWO' has no phonemes"):
        read_dictionary(tmp_path / "cmudict")
    (tmp_path / "cmu").write_text("ONE 1 W AH1 N\nONE 2 HH W AH1 N\n", encoding="utf-8")
    assert read_dictionary(tmp_path / "cmu") == {"one": "W AH1 N"}


def test_words_that_it_lacks_and_all_else_stay_as_they_are() -> None:
    dictionary = {"seven": "S EH1 V", "don't": "D OW1"}
    assert pronounced("Seven, don’t say sevens 7!", dictionary) == "S EH1 V, D OW1 say sevens 7!"


def test_a_line_without_phonemes_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.dict").write_text("ONE  W AH1 N\nTWO\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"bad\.dict:2: the word 'TWO' has no phonemes"):
        read_dictionary(tmp_path / "bad.dict")


def test_a_file_that_is_no_dictionary_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.dict: cannot be read as a dictionary"):
        read_dictionary(tmp_path / "none.dict")


def test_what_stands_behind_a_number_sign_is_a_remark(tmp_path: Path) -> None:
    (tmp_path / "cmudict.dict").write_text("aalborg AO1 L B AO0 R G # place, danish\n", encoding="utf-8")
    assert read_dictionary(tmp_path / "cmudict.dict") == {"aalborg": "AO1 L B AO0 R G"}


@pytest.mark.parametrize("remark", ["# a remark", "  # a remark", "#", "\t#remark"])
def test_a_line_may_be_a_remark_alone(tmp_path: Path, remark: str) -> None:
    (tmp_path / "my.dict").write_text(f"{remark}\nA AH0\n#HASH-MARK  HH AE1 SH\n", encoding="utf-8")
    read_dictionary.cache_clear()
    assert read_dictionary(tmp_path / "my.dict") == {"a": "AH0", "#hash-mark": "HH AE1 SH"}

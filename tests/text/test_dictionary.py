"""`dictionary`: the entries of a user's file."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ernie.errors import UserError
from ernie.text.segment.base import Kind
from ernie.text.segment.dictionary import Dictionary, Entries


def make(folder: Path, content: str | bytes, **keys) -> Dictionary:
    file = folder / "words.tsv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return Dictionary(file, **keys)


def found(dictionary: Dictionary, sentence: list[str]) -> list[tuple[str, str]]:
    spans = dictionary.spans(sentence, np.array([0])).tolist()
    return [("".join(sentence[first:stop]), Kind(kind).name.lower()) for first, stop, kind in spans]


def test_entries_are_found_with_their_kinds(tmp_path):
    dictionary = make(tmp_path, "new york\tentity\nstone mill\n# a comment\n\n北京大学\tentity\n")
    assert found(dictionary, ["The", "stone", "mill", "in", "New", "York"]) == [
        ("stonemill", "phrase"),
        ("NewYork", "entity"),
    ]
    assert found(dictionary, list("在北京大学")) == [("北京大学", "entity")]
    assert found(dictionary, ["在", "北京", "大学"]) == [("北京大学", "entity")]


def test_the_longest_entry_wins_from_left_to_right(tmp_path):
    dictionary = make(tmp_path, "a b\na b c\nc d\n")
    assert found(dictionary, ["a", "b", "c", "d", "a", "b"]) == [("abc", "phrase"), ("ab", "phrase")]


def test_an_entry_matches_whole_words_within_one_sentence(tmp_path):
    dictionary = make(tmp_path, "stone mill\n")
    assert found(dictionary, ["stone", "mills"]) == []
    assert dictionary.spans(["stone", "mill"], np.array([0, 1])).tolist() == []


def test_case_must_match_on_request(tmp_path):
    dictionary = make(tmp_path, "New York\n", match_case=True, entry_kind="entity")
    assert found(dictionary, ["new", "york", "New", "York"]) == [("NewYork", "entity")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("mill\tprase\n", r"words\.tsv:1: 'prase' is no kind of entry.* Did you mean 'phrase'\?"),
        ("mill\n\tword\n", r"words\.tsv:2: expected an entry before the tab"),
        (b"mill\n\xff", r"words\.tsv: is not UTF-8 text \(byte 5\)"),
    ],
)
def test_a_bad_line_is_reported_with_its_number(tmp_path, content, message):
    with pytest.raises(UserError, match=message):
        make(tmp_path, content)


def test_a_missing_file_is_reported(tmp_path):
    with pytest.raises(UserError, match=r"none\.tsv: cannot be read: No such file"):
        Dictionary(tmp_path / "none.tsv")


def test_a_pickled_dictionary_does_not_need_its_file(tmp_path):
    dictionary = make(tmp_path, "stone mill\n")
    data = pickle.dumps(dictionary)
    dictionary.file.unlink()
    assert found(pickle.loads(data), ["stone", "mill"]) == [("stonemill", "phrase")]


words_of_two_letters = st.lists(st.text("ab", min_size=1, max_size=2), min_size=1, max_size=6)


@given(st.sets(words_of_two_letters.map(" ".join)), words_of_two_letters)
def test_the_longest_prefix_equals_that_of_an_exhaustive_search(entries, words):
    expected = max((n for n in range(1, len(words) + 1) if " ".join(words[:n]) in entries), default=0)
    assert Entries(entries).longest(words) == expected


def test_an_entry_of_several_words_does_not_match_a_single_word_nor_the_reverse(tmp_path):
    dictionary = make(tmp_path, "now here\tentity\nstonemill\n12 34\n")
    assert found(dictionary, ["nowhere", "stone", "mill", "1234"]) == []
    assert found(dictionary, ["now", "here", "stonemill", "12", "34"]) == [
        ("nowhere", "entity"),
        ("stonemill", "phrase"),
        ("1234", "phrase"),
    ]


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("北京 大学", ["北京", "大学"]),
        ("卡拉 OK", ["卡", "拉", "OK"]),
        ("𠀀𠀁", ["𠀀", "𠀁"]),
        ("東京 タワー", ["東", "京", "タワー"]),
        ("U.S. Army", ["U", ".", "S", ".", "Army"]),
        ("well-known", ["well", "-", "known"]),
        ("Rock 'n' Roll", ["Rock", "'", "n", "'", "Roll"]),
        ("Covid19", ["Covid", "19"]),
        ("caf\u0301e\u00a0 noir", ["caf\u0301e", "", "noir"]),
    ],
)
def test_white_space_next_to_chinese_characters_digits_and_punctuation_makes_no_difference(tmp_path, entry, words):
    assert found(make(tmp_path, entry), words) == [("".join(words), "phrase")]
    assert found(make(tmp_path, " ".join(words)), words) == [("".join(words), "phrase")]


def test_a_text_given_as_a_dictionary_is_rejected(tmp_path):
    with pytest.raises(UserError, match=r"words\.tsv:2: an entry has at most 200 characters, this one has 5,009"):
        make(tmp_path, "stone mill\n" + "The mill. " * 501)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("北京 300 ns\n大学 20 n\n天气 7 n\n", r"look like those of jieba's dictionaries .*"),
        ("北京 300\n大学 20\n天气 7\n", r"look like those of jieba's dictionaries .*"),
        ("北京 n 300\n大学 n 20\n天气 v 7\n", r"look like those of jieba's dictionaries .*"),
        ("New York,entity\nstone mill,phrase\n", "look like rows of a CSV file"),
        ("word,kind\nNew York,entity\nstone mill,phrase\n", "look like rows of a CSV file"),
        ('["New York", "Rome"]\n', "look like objects of JSON"),
        ('{"entry": "New York"}\n{"entry": "Rome"}\n', "look like objects of JSON"),
    ],
)
def test_a_dictionary_of_another_program_is_refused_with_what_to_do(tmp_path, content, message):
    with pytest.raises(UserError, match=rf"words\.tsv: its lines {message}; expected an entry a line, which a tab"):
        make(tmp_path, content)


def test_entries_with_numbers_and_commas_are_entries(tmp_path):
    dictionary = make(tmp_path, "Apollo 11\nso, so\nso far\n")
    assert found(dictionary, ["Apollo", "11"]) == [("Apollo11", "phrase")]

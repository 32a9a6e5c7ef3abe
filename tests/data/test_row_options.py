"""Slices of sources, and columns made from other columns."""

from __future__ import annotations

from pathlib import Path

import pytest

from ernie.data.labeled.read import is_there, read_split
from ernie.data.labeled.row import Row, RowOptions
from ernie.errors import UserError


@pytest.fixture
def numbers(tmp_path: Path) -> str:
    file = tmp_path / "numbers.tsv"
    file.write_text("number\n" + "".join(f"{i}\n" for i in range(10)), encoding="utf-8")
    return str(file)


@pytest.mark.parametrize(("part", "first", "last"), [("[:4]", 0, 3), ("[4:]", 4, 9), ("[2:5]", 2, 4), ("", 0, 9)])
def test_a_slice_takes_rows_and_keeps_their_line_numbers(numbers: str, part: str, first: int, last: int) -> None:
    rows = read_split("train", [numbers + part], RowOptions()).rows
    assert [row["number"] for row in rows] == [str(i) for i in range(first, last + 1)]
    assert rows[0].place.line == first + 2  # after the header
    assert is_there(numbers + part)


def test_an_empty_slice_and_a_missing_file_are_errors(numbers: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there are no rows"):
        read_split("train", [f"{numbers}[20:]"], RowOptions())
    assert not is_there(str(tmp_path / "away.tsv[:4]"))


@pytest.mark.parametrize("pattern", ["It is {who", "It is who}", "{}", "{who}}"])
def test_a_composed_column_with_a_brace_too_many_is_refused(pattern: str) -> None:
    with pytest.raises(UserError, match=r"compose\.asked: '.*' has a brace that encloses no column"):
        RowOptions(compose={"asked": pattern})


def test_a_part_of_a_cell_that_is_named_as_a_column_says_how_to_make_it_one() -> None:
    row = Row({"translation": {"de": "rot", "en": "red"}})
    with pytest.raises(UserError, match=r"no column 'translation\.en'; compose: \{NAME: '\{translation\.en\}'\} under"):
        row.text("translation.en")


def test_lists_are_joined_and_columns_composed_from_parts() -> None:
    options = RowOptions(join={"words": "-"}, compose={"asked": "{who.name}: {words}, {count}"})
    row = options.adapt(Row({"who": {"name": "Anna"}, "words": ["a", "b"], "count": 3}))
    assert row is not None
    assert row["asked"] == "Anna: a-b, 3"


def test_what_is_missing_from_a_list_is_not_joined_as_a_word() -> None:
    row = RowOptions(join={"words": " "}).adapt(Row({"words": ["a", None, True, 1]}))
    assert row is not None
    assert row["words"] == "a true 1"


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("{whom}", "there is no column 'whom'"),
        ("{who.age}", "there is no column 'age'"),
        ("{words.name}", "column 'words': expected named parts"),
        ("{words}", "column 'words': expected text"),
    ],
)
def test_the_error_of_an_impossible_composition_says_what_is_missing(pattern: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        RowOptions(compose={"asked": pattern}).adapt(Row({"who": {"name": "Anna"}, "words": ["a", "b"]}))


def test_incomplete_rows_are_skipped_and_counted_only_on_request(tmp_path: Path) -> None:
    file = tmp_path / "torn.tsv"
    file.write_text("a\tb\n1\t2\n3\n4\t5\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"torn\.tsv:3: has 1 cell, expected 2"):
        read_split("train", [str(file)], RowOptions())
    split = read_split("train", [str(file)], RowOptions(faulty="skip"))
    assert (len(split.rows), split.skipped) == (2, 1)


def test_a_renaming_that_another_split_needs_not_says_so(tmp_path: Path) -> None:
    from finetune.config import DataConfig
    from finetune.prepare import read_splits

    for name, column in (("train", "sentence"), ("dev", "text")):
        (tmp_path / f"{name}.tsv").write_text(f"{column}\tlabel\nfine\tgood\n")
    sources = {"train": str(tmp_path / "train.tsv"), "dev": str(tmp_path / "dev.tsv")}
    with pytest.raises(UserError, match=r"dev\.tsv:1: there is no column 'sentence'") as raised:
        read_splits(DataConfig(**sources, rename={"text": "sentence"}))
    assert "data.rename holds for every split" in str(raised.value)
    assert "data.per_split.dev says how they are read" in str(raised.value)
    read_splits(DataConfig(**sources, rename={"text": "sentence"}, per_split={"dev": RowOptions()}))


def test_rows_without_a_label_are_skipped_unless_no_row_of_the_split_has_one(tmp_path: Path) -> None:
    options = RowOptions(skip={"label": ("", "-"), "text": ("x",)})
    (tmp_path / "train.tsv").write_text("text\tlabel\na\t1\nb\t\nc\t-\n", encoding="utf-8")
    (tmp_path / "test.tsv").write_text("text\tlabel\na\t\nb\t \nx\t\n", encoding="utf-8")
    (tmp_path / "gone.tsv").write_text("text\tlabel\na\t-\nb\t\n", encoding="utf-8")
    train = read_split("train", [str(tmp_path / "train.tsv")], options)
    test = read_split("test", [str(tmp_path / "test.tsv")], options)
    assert ([row["text"] for row in train.rows], train.skipped, train.unlabeled) == (["a"], 2, ())
    assert ([row["text"] for row in test.rows], test.skipped, test.unlabeled) == (["a", "b"], 1, ("label",))
    assert [row["text"] for row in read_split("test", [str(tmp_path / "gone.tsv")], options).rows] == ["b"]

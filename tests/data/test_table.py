"""Labeled files: rows read back as written, and every fault is reported with its line."""

from __future__ import annotations

import json
import pickle
import tracemalloc
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.data.indexed_table import Table, are_held_out
from ernie.errors import UserError

cells = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\r\n"), max_size=20)


def table(folder: Path, content: str | bytes, name: str = "rows.tsv", required: tuple[str, ...] = ("a",)) -> Table:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return Table(path, required)


@settings(max_examples=50)
@given(rows=st.lists(st.tuples(cells, cells), min_size=1), end=st.sampled_from(["", "\n", "\r\n"]))
def test_rows_of_a_tsv_file_read_back_as_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], end: str
) -> None:
    newline = end or "\n"
    text = newline.join(["a\tb", *("\t".join(row) for row in rows)]) + end
    found = table(tmp_path_factory.getbasetemp(), text)
    assert list(found) == [{"a": a, "b": b} for a, b in rows]


@settings(max_examples=50)
@given(rows=st.lists(st.fixed_dictionaries({"a": st.text(st.characters(exclude_categories=["Cs"]))}), min_size=1))
def test_rows_of_a_jsonl_file_read_back_as_written(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, str]]
) -> None:
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    assert list(table(tmp_path_factory.getbasetemp(), text, "rows.jsonl")) == rows


def test_values_that_are_not_text_become_text(tmp_path: Path) -> None:
    assert table(tmp_path, '{"a": 1, "b": 2.5, "c": null}\n', "rows.jsonl")[0] == {"a": "1", "b": "2.5", "c": "null"}


def test_a_byte_order_mark_is_not_part_of_the_first_column(tmp_path: Path) -> None:
    assert table(tmp_path, b"\xef\xbb\xbfa\tb\n1\t2\n")[0] == {"a": "1", "b": "2"}
    assert table(tmp_path, b'\xef\xbb\xbf{"a": 1}\n', "rows.jsonl")[0] == {"a": "1"}


@pytest.mark.parametrize("blank", ["\n", "\r\n"])
def test_blank_lines_are_no_rows_and_later_rows_keep_their_lines(tmp_path: Path, blank: str) -> None:
    found = table(tmp_path, f"a\tb\n{blank}1\t2\n{blank}{blank}3\t4\n{blank}")
    assert list(found) == [found[0], found[1]] == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
    assert [found.place(i).line for i in range(2)] == [3, 6]
    lines = table(tmp_path, f'{{"a": 1}}\n{blank}{{"a": 2}}\n{blank}', "rows.jsonl")
    assert list(lines) == [{"a": "1"}, {"a": "2"}]
    assert [lines.place(i).line for i in range(2)] == [1, 3]
    with pytest.raises(UserError, match=r"rows\.tsv:4: has 1 cell, the header has 2"):
        table(tmp_path, f"a\tb\n1\t2\n{blank} \n")[1]


def test_a_header_alone_is_a_table_without_rows(tmp_path: Path) -> None:
    assert len(table(tmp_path, "a\tb\n")) == 0
    assert len(table(tmp_path, "a\tb")) == 0
    with pytest.raises(IndexError):
        table(tmp_path, "a\n")[0]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.csv", "a,b\n", "rows.csv: expected a file that ends in .tsv or .jsonl"),
        ("rows.tsv", "", "rows.tsv: is empty"),
        ("rows.tsv", "aa\tb\n", "rows.tsv:1: there is no column 'a'. Did you mean 'aa'?"),
        ("rows.tsv", "a\tb\n1\t2\n1\n", "rows.tsv:3: has 1 cell, the header has 2"),
        ("rows.tsv", b"a\tb\n1\t2\n\xff\t2\n", "rows.tsv:3: is not UTF-8 text"),
        ("rows.tsv", b"a\t\xff\n1\t2\n", "rows.tsv:1: is not UTF-8 text"),
        ("rows.jsonl", '{"a": 1}\n{"a": \n', "rows.jsonl:2: is not JSON: Expecting value"),
        ("rows.jsonl", '{"a": 1}\n[1]\n', "rows.jsonl:2: expected a JSON object with named values"),
        ("rows.jsonl", '{"b": 1}\n', "rows.jsonl:1: there is no column 'a'. Known: b."),
        ("rows.jsonl", b'{"a": 1}\n\xff\n', "rows.jsonl:2: is not UTF-8 text"),
    ],
)
def test_a_fault_is_reported_with_its_line(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(UserError) as caught:
        list(table(tmp_path, content, name))
    assert str(caught.value).startswith(f"{tmp_path}/{message}")


def test_a_missing_file_raises_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no such file"):
        Table(tmp_path / "rows.tsv", ["a"])


def test_a_folder_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "rows.tsv").mkdir()
    with pytest.raises(UserError, match=r"rows\.tsv: cannot be read: Is a directory"):
        Table(tmp_path / "rows.tsv", ["a"])


def test_indexing_the_rows_does_not_load_the_whole_file(tmp_path: Path) -> None:
    content = "a\n" + ("x" * (1 << 20) + "\n") * 20
    tracemalloc.start()
    try:
        whole = table(tmp_path, content)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        again = Table(whole.path, ["a"])
        assert tracemalloc.get_traced_memory()[1] - before < len(content) / 4
    finally:
        tracemalloc.stop()
    assert [len(row["a"]) for row in again] == [1 << 20] * 20


def test_a_split_takes_every_row_once_and_keeps_equal_rows_on_one_side(tmp_path: Path) -> None:
    whole = table(tmp_path, "a\tb\n" + "".join(f"{i % 500}\t{i}\n" for i in range(1000)))
    train, held_out = whole.rows(held_out=False), whole.rows(held_out=True)
    assert sorted(int(row["b"]) for side in (train, held_out) for row in side) == list(range(1000))
    assert not {row["a"] for row in train} & {row["a"] for row in held_out}
    assert 60 <= len(held_out) <= 140


def test_at_least_one_of_ten_distinct_rows_is_held_out(tmp_path: Path) -> None:
    for name in "bcdefgh":
        rows = "".join(f"{name}{i}\n" for i in range(10))
        assert len(table(tmp_path, "a\n" + rows * 3).rows(held_out=True)) in range(3, 30, 3)
    assert len(table(tmp_path, "a\n" + "b\n" * 3).rows(held_out=True)) == 0


@given(st.lists(st.integers(2**32 // 11, 2**32 - 1), min_size=1, max_size=40), st.randoms())
def test_the_split_does_not_depend_on_the_order_of_the_rows(hashes: list[int], random: Random) -> None:
    shuffled = random.sample(hashes, len(hashes))
    sides = []
    for order in (hashes, shuffled):
        out = are_held_out(np.array(order, np.uint32))
        sides.append({(value, bool(is_out)) for value, is_out in zip(order, out, strict=True)})
    assert sides[0] == sides[1]
    lowest = {value for value in hashes if value < 0.1 * 2**32}
    expected = lowest or ({min(hashes)} if len(set(hashes)) >= 10 else set())
    assert {value for value, is_out in sides[0] if is_out} == expected


def test_a_split_reads_the_file_once_whatever_its_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = table(tmp_path, "a\n" + "".join(f"{i}\n" for i in range(100)))
    opened: list[Path] = []
    original_open = Path.open
    monkeypatch.setattr(Path, "open", lambda path, mode: opened.append(path) or original_open(path, mode))
    assert len(whole.rows(held_out=False)) + len(whole.rows(held_out=True)) == 100
    assert opened == [whole.path]


def test_a_row_of_a_split_knows_its_line(tmp_path: Path) -> None:
    whole = table(tmp_path, "a\n" + "".join(f"{line}\n" for line in range(2, 102)))
    rows = whole.rows(held_out=True)
    assert len(rows) > 0
    assert [str(rows.place(i)) for i in range(len(rows))] == [f"{whole.path}:{row['a']}" for row in rows]


def test_a_table_can_be_pickled_for_worker_processes(tmp_path: Path) -> None:
    rows = table(tmp_path, "a\n1\n2\n").rows(held_out=False, fraction=0)
    assert list(pickle.loads(pickle.dumps(rows))) == [{"a": "1"}, {"a": "2"}]

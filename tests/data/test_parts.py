"""Parts of inputs: all documents are read once and in order, whoever reads which part."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import pickle
import random
import re
import tracemalloc
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.documents import put

from ernie.data.parts import Part, PartReader, parts
from ernie.data.raw import Dropped, ReadOptions
from ernie.data.read import Input, find_inputs, read_documents, read_input
from ernie.data.workers import Workers
from ernie.errors import DamagedFile, Remark, UserError

RNG = random.Random(0)
TEXTS = [f"Line {i}.\n" + f"The {RNG.getrandbits(200 * (1 + i % 40)):x} is slow.\n" for i in range(2000)]


def parquet() -> bytes:
    held = io.BytesIO()
    pq.write_table(pa.table({"text": TEXTS}), held, row_group_size=100)
    return held.getvalue()


def wiki() -> bytes:
    pages = "".join(
        f"<page><title>P{i}</title><ns>0</ns><id>{i}</id><revision><id>1</id><text>{text}</text></revision></page>"
        for i, text in enumerate(TEXTS)
    )
    site = "<siteinfo><namespaces></namespaces></siteinfo>"
    return f'<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/">{site}{pages}</mediawiki>'.encode()


def archive() -> bytes:
    begins = "WARC/1.0\r\nWARC-Type: conversion\r\nContent-Type: text/plain\r\n"
    return "".join(f"{begins}Content-Length: {len(text)}\r\n\r\n{text}\r\n\r\n" for text in TEXTS).encode()


FILES = {
    "a.txt": "\n".join(TEXTS).encode(),
    "a.txt.gz": gzip.compress("\n".join(TEXTS).encode()),
    "a.jsonl": "\n".join(json.dumps({"text": text}) for text in [*TEXTS, 5]).encode(),
    "a.csv": ("text\n" + "".join(f'"{text}"\n' for text in TEXTS)).encode(),
    "a.parquet": parquet(),
    "a.xml.bz2": bz2.compress(wiki(), 1),
    "a.wet": archive(),
}


def seen(items: Any) -> list[tuple[str, ...]]:
    return [
        (str(item.place), item.detail) if isinstance(item, Dropped) else (str(item.place), item.title, item.text)
        for item in items
    ]


def cut(paths: list[Path], monkeypatch: pytest.MonkeyPatch, size: int) -> list[Part]:
    """The parts of paths, about `size` bytes of text each; files are read in smaller steps than that."""
    monkeypatch.setattr("ernie.data.parts.PART", size)
    monkeypatch.setattr("ernie.data.compressed._BUFFER", 1 << 12)
    return list(parts(find_inputs(paths), ReadOptions()))


@pytest.mark.parametrize("name", FILES)
def test_the_pieces_of_a_file_have_all_documents_once_and_in_order(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name.endswith(".wet"):
        pytest.importorskip("warcio")
    if ".xml" in name:
        pytest.importorskip("mwxml")
    path = put(tmp_path / name, FILES[name])
    pieces = cut([path], monkeypatch, 300_000)
    reader, at = PartReader(ReadOptions()), 0
    found: list[list[Any]] = []
    for piece in pieces:
        before, items = reader(piece)
        assert before == at
        found.append([item for number, item in items if number == 0])
        at += len(found[-1])
    whole = seen(read_documents([path]))
    assert sum(map(bool, found)) > 2 and len(whole) >= 2000
    assert seen(chain.from_iterable(found)) == whole


def test_pieces_are_read_in_any_order_by_anybody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "a.txt", FILES["a.txt"])
    pieces = cut([path], monkeypatch, 60_000)
    readers = [PartReader(ReadOptions()), pickle.loads(pickle.dumps(PartReader(ReadOptions())))]
    rng, found = random.Random(1), {}
    for piece in rng.sample(pieces, len(pieces)):
        before, items = rng.choice(readers)(piece)
        found[piece.piece] = before, seen(item for _, item in items)
    ordered = [found[number] for number in range(len(pieces))]
    assert list(chain.from_iterable(texts for _, texts in ordered)) == seen(read_documents([path]))
    assert [before for before, _ in ordered] == [0, *accumulate(len(texts) for _, texts in ordered)][:-1]


def test_small_files_share_a_part_and_keep_their_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [put(tmp_path / f"{i}.txt", f"Text {i}.") for i in range(10)]
    cuts = cut(paths, monkeypatch, 5 * 4200)
    assert [(part.first, len(part.inputs)) for part in cuts] == [(0, 5), (5, 5)]
    reader = PartReader(ReadOptions())
    items = [item for part in cuts for item in reader(part)[1]]
    assert [(number, item.text) for number, item in items] == [(i, f"Text {i}.") for i in range(10)]
    assert cuts[-1].end == sum(path.stat().st_size for path in paths)


def test_what_no_worker_can_read_comes_with_its_documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets")
    datasets.Dataset.from_dict({"text": TEXTS}).save_to_disk(str(tmp_path / "set"))
    cuts = cut([tmp_path / "set"], monkeypatch, 300_000)
    assert len(cuts) > 3 and all(part.items is not None for part in cuts)
    read = [PartReader(ReadOptions())(pickle.loads(pickle.dumps(part))) for part in cuts]
    items = [[item for _, item in items] for _, items in read]
    assert seen(chain.from_iterable(items)) == seen(read_documents([tmp_path / "set"]))
    assert [before for before, _ in read] == [0, *accumulate(map(len, items))][:-1]


def test_a_file_that_breaks_off_is_an_error_in_its_last_piece(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "a.txt.gz", FILES["a.txt.gz"][:-20_000])
    pieces = cut([path], monkeypatch, 300_000)
    reader = PartReader(ReadOptions())
    assert len(list(reader(pieces[0])[1])) > 3
    with pytest.raises(UserError, match=r"a\.txt\.gz: the gzip file breaks off"):
        list(reader(pieces[-1])[1])
    assert len(list(reader(pieces[0])[1])) > 3


@pytest.mark.parametrize(
    "name", ["a.txt.gz", "a.csv", "a.parquet", "a.xml.bz2", "a.wet", "a.wet.gz", "a.json", "a.json.gz", "a.txt.bz2"]
)
def test_of_a_file_that_breaks_off_what_stands_before_is_kept_and_the_loss_is_counted(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for part, package in ((".wet", "warcio"), (".xml", "mwxml")):
        if part in name:
            pytest.importorskip(package)
    (tmp_path / "whole").mkdir()
    listed = json.dumps([{"text": text} for text in TEXTS]).encode()
    whole = {
        **FILES,
        "a.json": listed,
        "a.json.gz": gzip.compress(listed),
        "a.wet.gz": gzip.compress(FILES["a.wet"]),
        "a.txt.bz2": bz2.compress(listed),  # JSON under another name
    }[name]
    before = seen(read_documents([put(tmp_path / "whole" / name, whole)]))
    path = put(tmp_path / name, whole[: len(whole) * 2 // 3])
    with pytest.raises(DamagedFile, match=rf"{re.escape(name)}\b.*\. To go on .*: --set read\.damaged=drop$"):
        list(read_documents([path], ReadOptions()))
    options = ReadOptions(damaged="drop")
    with pytest.warns(Remark, match=rf"{re.escape(name)}\b.*\. The rest of it is left out$"):
        *kept, lost = list(read_documents([path], options))
    assert isinstance(lost, Dropped)
    assert (lost.reason, lost.by_kind, lost.place.file) == ("rest of a damaged file", False, str(path))
    assert [text for _, text, *_ in seen(kept)] == [text for _, text, *_ in before][: len(kept)]
    assert name == "a.parquet" or len(kept) > len(before) // 3
    reader = PartReader(options)
    pieces = [list(reader(piece)[1]) for piece in cut([path], monkeypatch, 300_000)]
    assert [item for piece in pieces for _, item in piece] == [*kept, lost]
    with pytest.raises(UserError, match=r"Without read\.strict the document would be dropped"):
        list(read_documents([path], replace(options, strict=True)))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.parquet", b"<html></html>" * 50),
        ("a.arrow", b"<html></html>" * 50),
        ("a.json", b"<html></html>"),
        ("a.json", '[{"text": "One."}]'.encode("utf-16-le")),
        ("a.wet", b"<html></html>"),
        ("a.xml", b"no XML"),
        ("a.txt.gz", b"no gzip"),
    ],
)
def test_what_is_nothing_of_its_kind_is_an_error_in_any_case(tmp_path: Path, name: str, content: bytes) -> None:
    with pytest.raises(UserError, match=re.escape(name)) as raised:
        list(read_documents([put(tmp_path / name, content)], ReadOptions(damaged="drop")))
    assert not isinstance(raised.value, DamagedFile)


def test_a_stream_that_breaks_off_is_named_as_it_was_given(tmp_path: Path) -> None:
    copy = put(tmp_path / "copy", FILES["a.txt.gz"][:-20_000])
    stream = Input("standard input", is_stream=True, copy=copy)
    with pytest.warns(Remark, match=r"^standard input: the gzip file breaks off after line [\d,]+\. The rest of it"):
        *_, lost = read_input(stream, ReadOptions(damaged="drop"))
    assert isinstance(lost, Dropped)
    assert re.fullmatch(r"the gzip file breaks off after line [\d,]+", lost.detail)


def test_where_options_cannot_be_set_none_is_proposed(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt.gz", FILES["a.txt.gz"][:-20_000])
    with pytest.raises(DamagedFile, match=r"and give the unpacked file$"):
        list(read_documents([path]))


def test_a_file_that_changes_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = put(tmp_path / "a.txt", FILES["a.txt"])
    pieces = cut([path], monkeypatch, 300_000)
    put(path, FILES["a.txt"] + b"More.")
    with pytest.raises(UserError, match=r"a\.txt: was changed while it was read"):
        list(PartReader(ReadOptions())(pieces[-1])[1])


def test_with_strict_options_a_document_that_cannot_be_parsed_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("trafilatura")
    strict = ReadOptions(strict=True)
    (part,) = parts(find_inputs([put(tmp_path / "a.html", "<html><body></body></html>")]), strict)
    with pytest.raises(UserError, match=r"Without read\.strict"):
        list(PartReader(strict)(part)[1])


class Repeated(Sequence[Input]):
    """An input, many times."""

    def __init__(self, source: Input, count: int):
        self.source, self.count = source, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: Any) -> Any:
        if not 0 <= i < self.count:
            raise IndexError(i)
        return self.source


@pytest.mark.parametrize(("size", "amount", "count"), [(10**9, 10**12, 11_000), (4_000, 4 * 10**7, 4)])
def test_the_parts_of_a_terabyte_are_made_one_by_one_in_bounded_memory(
    size: int, amount: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ernie.data.parts.PART", 90_000_000 if size == 10**9 else 1 << 23)
    inputs = Repeated(Input("a.jsonl", size), amount // size)
    tracemalloc.start()
    made = end = 0
    for part in parts(inputs, ReadOptions()):
        made, end = made + 1, part.end
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert end == amount and made >= count
    assert peak < 1_000_000


def test_workers_are_given_few_parts_before_their_results_are_taken() -> None:
    given = 0

    def counted() -> Iterator[int]:
        nonlocal given
        while given < 40:
            given += 1
            yield given

    with Workers(2, "") as workers:
        for taken, found in enumerate(workers.map(abs, counted()), 1):
            assert found == taken and given <= taken + 2 * 2

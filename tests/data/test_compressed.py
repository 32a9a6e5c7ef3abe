"""Compressed files: each kind is read as what is in it, and what is damaged or too much is refused in a sentence."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from support.documents import put, read_all

from ernie.data import compressed, parquet
from ernie.data.labeled.read import read_rows
from ernie.data.labeled.row import Row, RowOptions
from ernie.data.read import find_inputs, read_documents
from ernie.errors import UserError

Compress = Callable[[bytes], bytes]
KINDS: dict[str, Compress] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}
kinds = pytest.mark.parametrize(("suffix", "compress"), KINDS.items(), ids=list(KINDS))
LINES = "".join(f"Line {i} {i * 7919 % 1000}.\n" for i in range(20_000)).encode()


@kinds
def test_texts_of_every_format_may_be_compressed(tmp_path: Path, suffix: str, compress: Compress) -> None:
    put(tmp_path / f"a.txt{suffix}", compress(b"One.\n\nTwo."))
    put(tmp_path / f"B.JSONL{suffix.upper()}", compress(b'{"text": "Three."}\n'))
    put(tmp_path / f"wiki_00{suffix}", compress(b'<doc title="T">\nT\n\nFour.\n</doc>\n'))
    assert sorted(document.text for document in read_all(tmp_path)) == ["Four.", "One.", "Three.", "Two."]


@kinds
@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl", "a.json"])
def test_labeled_rows_may_be_compressed(tmp_path: Path, suffix: str, compress: Compress, name: str) -> None:
    content = {
        "a.tsv": "text\tlabel\ngood\tyes\n",
        "a.csv": "text,label\ngood,yes\n",
        "a.jsonl": '{"text": "good", "label": "yes"}\n',
        "a.json": '[{"text": "good", "label": "yes"}]',
    }[name]
    path = put(tmp_path / f"{name}{suffix}", compress(content.encode()))
    (row,) = read_rows(str(path), RowOptions())
    assert isinstance(row, Row)
    assert (row.text("text"), row.text("label")) == ("good", "yes")


@kinds
def test_compressed_files_may_follow_one_another(tmp_path: Path, suffix: str, compress: Compress) -> None:
    path = put(tmp_path / f"a.txt{suffix}", compress(b"One.\n\n") + compress(b"Two.\n"))
    assert [document.text for document in read_all(path)] == ["One.", "Two."]


@kinds
def test_a_file_that_breaks_off_is_an_error_with_a_remedy(tmp_path: Path, suffix: str, compress: Compress) -> None:
    whole = compress(LINES)
    path = put(tmp_path / f"a.txt{suffix}", whole[: len(whole) * 3 // 4])
    with pytest.raises(UserError, match=rf"a\.txt\{suffix}: the \w+ file breaks off after line [\d,]+\. Fetch .* -dc "):
        list(read_documents([path]))


@kinds
def test_a_damaged_file_is_an_error(tmp_path: Path, suffix: str, compress: Compress) -> None:
    whole = bytearray(compress(LINES))
    for i in range(len(whole) // 2, len(whole) // 2 + 40):
        whole[i] ^= 0xFF
    with pytest.raises(UserError, match=r"file (is damaged \(|breaks off)"):
        list(read_documents([put(tmp_path / f"a.txt{suffix}", bytes(whole))]))


@kinds
def test_a_file_of_another_kind_is_named(tmp_path: Path, suffix: str, compress: Compress) -> None:
    with pytest.raises(UserError, match=rf"though its name says so; take \{suffix} off it$"):
        list(read_documents([put(tmp_path / f"a.txt{suffix}", "plain text")]))
    other = ".gz" if suffix != ".gz" else ".zst"
    with pytest.raises(UserError, match=rf"take \{suffix} off it, or rename it to \{other}"):
        list(read_documents([put(tmp_path / f"b.txt{suffix}", KINDS[other](b"text"))]))
    (dropped,) = read_documents([put(tmp_path / "c.txt", compress(b"text"))])
    assert f"give a file whose name ends in {suffix}" in dropped.detail


@kinds
def test_what_grows_beyond_the_limit_is_refused_in_a_sentence(
    tmp_path: Path, suffix: str, compress: Compress, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed, "ALWAYS", 1 << 20)
    for name, content in (("a.txt", b"\n" * (3 << 20)), ("b.jsonl", b" " * (3 << 20)), ("c.txt", b"x" * (3 << 20))):
        path = put(tmp_path / f"{name}{suffix}", compress(content))
        with pytest.raises(
            UserError, match=r"holds more than \d+ MB in 0\.0 MB on the disk\. A file may hold 250 times"
        ):
            list(read_documents([path]))


def test_a_pointer_of_git_lfs_is_named(tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n"
    for name in ("a.txt", "a.jsonl", "a.json", "a.txt.gz", "a.parquet"):
        with pytest.raises(UserError, match=f"{name}: is a Git LFS pointer"):
            list(read_documents([put(tmp_path / name, pointer)]))


class TestParquet:
    def test_a_file_that_holds_more_than_the_limit_is_refused_before_it_is_read(self, tmp_path, monkeypatch):
        monkeypatch.setattr(compressed, "ALWAYS", 1 << 20)
        table = pa.table({"text": ["x" * (3 << 20)]})
        pq.write_table(table, tmp_path / "a.parquet", compression="zstd", write_statistics=False)
        with pytest.raises(UserError, match=r"a\.parquet: holds more than 1 MB in"):
            list(read_documents([tmp_path]))

    def test_a_dictionary_that_is_repeated_is_refused_on_the_way(self, tmp_path, monkeypatch):
        monkeypatch.setattr(compressed, "ALWAYS", 1 << 20)
        table = pa.table({"text": pa.array(["x" * (1 << 18)] * 1000).dictionary_encode()})
        pq.write_table(table, tmp_path / "a.parquet")
        documents = read_documents([tmp_path])
        assert len(next(documents).text) == 1 << 18
        with pytest.raises(UserError, match="holds more than"):
            list(documents)

    def test_large_rows_are_decoded_a_few_at_a_time(self, tmp_path, monkeypatch):
        monkeypatch.setattr(parquet, "_MEMORY", 10_000)
        texts = [f"{i} {'x' * 3000}" for i in range(20)]
        pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", compression="none")
        steps: list[float] = []
        assert [row["text"] for row in parquet.parquet_rows(tmp_path / "a.parquet", progress=steps.append)] == texts
        assert len(steps) >= 5

    @pytest.mark.parametrize("before", [0, 10])
    def test_a_row_beyond_the_limit_is_refused_before_it_is_a_text(self, tmp_path, monkeypatch, before):
        monkeypatch.setattr(parquet, "_MEMORY", 10_000)
        texts = ["One."] * before + ["x" * 11_000] + ["One."] * 1000
        pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
        with pytest.raises(UserError, match=rf"a\.parquet: row {before + 1:,} holds more than"):
            list(parquet.parquet_rows(tmp_path / "a.parquet"))

    def test_ordinary_files_are_within_the_limit(self, tmp_path):
        pq.write_table(pa.table({"text": ["It runs."] * 100_000}), tmp_path / "a.parquet")
        assert len(list(read_documents(find_inputs([tmp_path])[0].name for _ in range(1)))) == 100_000

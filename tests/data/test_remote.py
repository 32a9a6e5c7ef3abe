"""Text at addresses: an object store, a web server whose connections break, and what is said without either."""

from __future__ import annotations

import gzip
import io
import warnings
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.documents import put, read_all
from support.object_store import object_store
from support.web_server import Site, serving

from ernie.data import remote
from ernie.data.labeled.read import read_split
from ernie.data.labeled.row import RowOptions
from ernie.data.read import check_unchanged, find_inputs, read_documents, read_input
from ernie.data.remote import Address, is_address, place, without_secrets
from ernie.data.stream_copy import streams_copied
from ernie.errors import Remark, UserError

LINES = "".join(f"Line {i} of {i * 7919 % 1000}.\n\n" for i in range(20_000))


def parquet(*texts: str) -> bytes:
    held = io.BytesIO()
    pq.write_table(pa.table({"text": list(texts)}), held)
    return held.getvalue()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pauses are short, and blocks small enough that a file has many."""
    monkeypatch.setattr(remote, "PAUSE", 0.001)
    monkeypatch.setattr(remote, "_BLOCK", 1 << 16)
    monkeypatch.setattr(remote, "_BUFFER", 1 << 14)


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    """A client of an object store with some texts."""
    with object_store("texts") as client:
        for key, content in {
            "books/a.txt": b"One.\n\nTwo.\n",
            "books/more/b.txt.gz": gzip.compress(b"Three.\n"),
            "books/c.parquet": parquet("Four."),
            "books/notes.pdf": b"%PDF",
            "books/_temporary/d.txt": b"unfinished",
            "long.txt": LINES.encode(),
            "rows.csv": b"text,label\ngood,yes\nbad,no\n",
        }.items():
            client.put_object(Bucket="texts", Key=key, Body=content)
        yield client


class TestStore:
    def test_a_folder_is_searched_through_as_a_local_one_is(self, store: Any) -> None:
        with pytest.warns(Remark, match=r"files that end in \.pdf are not read"):
            documents = read_all("s3://texts/books")
        assert [(str(each.place), each.text) for each in documents] == [
            ("s3://texts/books/a.txt:1", "One."),
            ("s3://texts/books/a.txt:3", "Two."),
            ("s3://texts/books/c.parquet:1", "Four."),
            ("s3://texts/books/more/b.txt.gz:1", "Three."),
        ]

    @pytest.mark.parametrize(
        ("pattern", "texts"), [("books/*.txt", ["One.", "Two."]), ("books/**/*.gz", ["Three."]), ("b*/?.p*", ["Four."])]
    )
    def test_a_pattern_finds_files(self, store: Any, pattern: str, texts: list[str]) -> None:
        assert [document.text for document in read_all(f"s3://texts/{pattern}")] == texts

    def test_a_file_is_read_in_blocks_as_the_local_one(self, store: Any, tmp_path: Path) -> None:
        local = put(tmp_path / "long.txt", LINES)
        there, here = (read_all(name) for name in ("s3://texts/long.txt", local))
        assert [(each.place.line, each.text) for each in there] == [(each.place.line, each.text) for each in here]

    def test_labeled_rows_are_read_and_sliced(self, store: Any) -> None:
        rows = read_split("train", ["s3://texts/rows.csv[1:]"], RowOptions()).rows
        assert [(dict(row), str(row.place)) for row in rows] == [
            ({"text": "bad", "label": "no"}, "s3://texts/rows.csv:3")
        ]

    def test_an_object_that_changes_while_it_is_read_is_an_error(self, store: Any) -> None:
        store.put_object(Bucket="texts", Key="other/a.txt", Body=b"One.")
        (source,) = find_inputs(["s3://texts/other/a.txt"])
        check_unchanged(source)
        store.put_object(Bucket="texts", Key="other/a.txt", Body=b"Two.")
        with pytest.raises(UserError, match=r"other/a\.txt: was changed while it was read \(its size is the same"):
            list(read_input(source))

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("none.txt", "there is no such file or folder"),
            ("none/*.txt", "no file matches this pattern and ends in"),
            ("books/notes.pdf", "expected a name that ends in"),
        ],
    )
    def test_what_is_not_there_is_an_error_in_a_sentence(self, store: Any, name: str, why: str) -> None:
        with pytest.raises(UserError, match=why):
            find_inputs([f"s3://texts/{name}"])

    def test_a_bucket_that_is_not_there_is_an_error(self, store: Any) -> None:
        with pytest.raises(UserError, match=r"s3://nowhere/a\.txt: there is no such file"):
            find_inputs(["s3://nowhere/a.txt"])

    def test_one_object_given_twice_is_refused(self, store: Any) -> None:
        with pytest.raises(UserError, match="is given twice"):
            find_inputs(["s3://texts/books/a.txt", "s3://texts/books/*.txt"])


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("s3://texts/a.txt", "s3://texts/a.txt"),
        ("https://host/a.txt?page=2", "https://host/a.txt?page=2"),
        ("https://host/a?access_token=t&page=2#top", "https://host/a?access_token=...&page=2#top"),
        ("https://me:secret@host:80/a.txt", "https://me:...@host:80/a.txt"),
        ("https://host:80/a@b.txt", "https://host:80/a@b.txt"),
    ],
)
def test_an_address_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert str(Address(url)) == without_secrets(url) == shown


class TestWeb:
    @pytest.fixture
    def site(self) -> Iterator[Site]:
        with serving(Site({"/long.txt": LINES.encode(), "/texts/a.txt": b"One.", "/texts/b.txt": b"Two."})) as site:
            yield site

    def texts(self, site: Site, path: str = "/long.txt") -> list[str]:
        return [document.text for document in read_all(f"{site.url}{path}")]

    def test_reading_goes_on_at_the_byte_where_a_connection_broke(self, site: Site) -> None:
        site.breaks["/long.txt"] = [1 << 20, 1 << 20, 1 << 20, 1_000, 2_000]
        with pytest.warns(Remark, match=r"long\.txt: 2 reads failed and went on at the byte where it had stopped"):
            texts = self.texts(site)
        assert texts == LINES.split("\n\n")[:-1]
        starts = [int(part.partition("=")[2].partition("-")[0]) for _, part in site.asked if part]
        assert sum(start == after > 0 for start, after in pairwise(starts)) >= 2
        assert starts.count(0) <= 2  # of which one found out the format

    @pytest.mark.parametrize("kind", ["whole", "unsized"])
    def test_a_server_that_sends_only_whole_files_is_read(self, site: Site, kind: str, tmp_path: Path) -> None:
        getattr(site, kind).add("/long.txt")
        with streams_copied(find_inputs([f"{site.url}/long.txt"]), tmp_path / "out") as (source,):
            assert [document.text for document in read_input(source)] == LINES.split("\n\n")[:-1]
            assert (source.copy is None) == (kind == "whole")

    def test_a_whole_file_that_breaks_off_is_read_on(self, site: Site) -> None:
        site.whole.add("/long.txt")
        site.breaks["/long.txt"] = [1 << 20, 1 << 20, 1 << 20, 300_000]
        with pytest.warns(Remark, match="1 read failed"):
            assert self.texts(site) == LINES.split("\n\n")[:-1]

    def test_what_is_written_of_a_signed_address_holds_no_secret(self, site: Site) -> None:
        site.files["/texts/a.txt?page=2&X-Amz-Signature=abc"] = b"One."
        (document,) = read_all(f"{site.url}/texts/a.txt?page=2&X-Amz-Signature=abc")
        assert str(document.place).startswith(f"{site.url}/texts/a.txt?page=2&X-Amz-Signature=...")
        with pytest.raises(UserError, match=r"none\.txt\?sig=\.\.\.: there is no such file"):
            find_inputs([f"{site.url}/none.txt?sig=abc"])

    def test_a_busy_server_is_asked_again(self, site: Site) -> None:
        site.fails["/texts/a.txt"] = [503, 429, 500]
        assert self.texts(site, "/texts/a.txt") == ["One."]

    def test_a_server_that_stays_broken_is_an_error_that_says_where(self, site: Site) -> None:
        site.breaks["/long.txt"] = [1 << 20, 1 << 20, *[0] * 50]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Remark)
            with pytest.raises(
                UserError, match=r"long\.txt: cannot be read at byte [\d,]+ after 6 tries: .*connection"
            ):
                self.texts(site)

    @pytest.mark.parametrize(
        ("status", "why"), [(404, "there is no such file or folder"), (403, "may not be read: 403"), (418, "418")]
    )
    def test_an_answer_that_will_not_change_is_an_error_at_once(self, site: Site, status: int, why: str) -> None:
        site.fails["/texts/a.txt"] = [status] * 20
        with pytest.raises(UserError, match=why):
            find_inputs([f"{site.url}/texts/a.txt"])
        assert len(site.asked) == 1

    def test_a_server_that_says_nothing_is_given_up_after_a_time(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import socket

        monkeypatch.setattr(remote, "_TIMEOUT", 0.05)
        monkeypatch.setattr(remote, "TRIES", 2)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            url = f"http://127.0.0.1:{silent.getsockname()[1]}/a.txt"
            with pytest.raises(UserError, match=r"a\.txt: cannot be read after 2 tries: .*[Tt]imeout"):
                find_inputs([url])

    def test_a_page_that_links_to_files_is_a_folder(self, site: Site) -> None:
        assert self.texts(site, "/texts/") == ["One.", "Two."]

    def test_what_a_page_without_a_name_holds_is_found_out(self, site: Site) -> None:
        site.files["/get?id=7"] = b'{"text": "Five."}\n'
        assert self.texts(site, "/get?id=7") == ["Five."]

    def test_compressed_and_columnar_files_are_read(self, site: Site) -> None:
        site.files["/a.txt.gz"], site.files["/b.parquet"] = gzip.compress(b"Six."), parquet("Seven.")
        assert self.texts(site, "/a.txt.gz") + self.texts(site, "/b.parquet") == ["Six.", "Seven."]


class TestOthers:
    def test_files_in_memory_are_read(self) -> None:
        import fsspec

        fsspec.filesystem("memory").pipe("/texts/a.txt", b"One.")
        assert [document.text for document in read_all("memory://texts")] == ["One."]

    def test_a_local_path_is_no_address(self) -> None:
        assert not any(map(is_address, ("a.txt", "/a/b", "C:\\a", "hf:name", "a:b", "-")))
        assert place("a.txt") == Path("a.txt")

    def test_an_unknown_kind_of_address_is_an_error(self) -> None:
        with pytest.raises(UserError, match=r"ftq://a/b: nothing reads addresses that begin with ftq://; known are s3"):
            find_inputs(["ftq://a/b"])

    def test_a_store_without_its_package_is_an_error_with_the_command_to_install_it(self) -> None:
        import fsspec

        fsspec.register_implementation("nos", "no_such_store.Files", clobber=True, errtxt="Install no_such_store")
        with pytest.raises(UserError, match=r"nos://a: needs a package .*: pip install 'ernie-continual\[remote\]'"):
            list(read_documents(["nos://a"]))

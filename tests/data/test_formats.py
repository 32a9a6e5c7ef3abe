"""Formats of text besides plain text and JSON: web archives, pages, dumps of wikis, separated values, Arrow."""

from __future__ import annotations

import gc
import gzip
import io
from itertools import islice
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np
import pyarrow as pa
import pytest
from support.documents import put, read_all

from ernie.data.formats import FORMATS, format_of_name
from ernie.data.raw import Dropped, FormatName, RawDocument, ReadOptions
from ernie.data.read import find_inputs, read_documents, read_input
from ernie.data.stream_copy import streams_copied
from ernie.errors import Remark, UserError

BODY = "".join(
    f"<p>Paragraph {i} tells at length how the river Spree runs through the old town, slowly and in many bends.</p>"
    for i in range(4)
)
PAGE = (
    "<!DOCTYPE html><html><head><title>The River</title></head><body><nav><a href='/'>Home</a> <a href='/x'>More</a>"
    f"</nav><article><h1>The River</h1>{BODY}</article><footer>Imprint</footer></body></html>"
)
WIKI = """<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="de">
<siteinfo><sitename>W</sitename><dbname>w</dbname><namespaces><namespace key="0" case="first-letter"/>
<namespace key="6" case="first-letter">Datei</namespace><namespace key="14" case="first-letter">Kategorie</namespace>
<namespace key="1" case="first-letter">Diskussion</namespace></namespaces></siteinfo>
{}
</mediawiki>
"""
ARTICLE = """{{Infobox|name=Spree}}[[Datei:Spree.jpg|mini|A bend of the [[Spree]].]]
The '''Spree''' ({{IPA|x}}; a river) runs through [[Berlin|the capital]].<ref>Atlas, p. 7</ref>

== Course ==
=== Upper ===
It is slow. Its length is 400&amp;nbsp;km &amp;lt; 500.
{| class="wikitable"
| a cell
|}
* one bend
* two bends

== References ==
<references/>
[[Kategorie:River]]"""
URL = "http://a/"


def page(title: str, text: str, space: int = 0, more: str = "") -> str:
    markup = text.replace("&amp;", "&").replace("&", "&amp;").replace("<", "&lt;")
    return (
        f"<page><title>{title}</title><ns>{space}</ns><id>1</id>{more}<revision><id>2</id>"
        f"<timestamp>2020-01-01T00:00:00Z</timestamp><model>wikitext</model><format>text/x-wiki</format>"
        f"<text>{markup}</text></revision></page>"
    )


def record(kind: str, content: bytes, content_type: str = "text/plain", uri: str = URL) -> bytes:
    head = f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {uri}\r\nContent-Type: {content_type}\r\n"
    head += "WARC-Record-ID: <urn:uuid:0>\r\nWARC-Date: 2020-01-01T00:00:00Z\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content + b"\r\n\r\n"


def answer(content: str | bytes, kind: str = "text/html", status: str = "200 OK", more: str = "") -> bytes:
    body = content if isinstance(content, bytes) else content.encode()
    http = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body
    return record("response", http, "application/http; msgtype=response")


class TestWebArchives:
    @pytest.fixture(autouse=True)
    def needs_packages(self) -> None:
        pytest.importorskip("warcio")
        pytest.importorskip("trafilatura")

    @pytest.mark.parametrize("packed", [False, True])
    def test_pages_become_documents_and_all_else_is_counted(self, tmp_path: Path, packed: bool) -> None:
        records = [
            record("warcinfo", b"software: x"),
            record("request", b"GET / HTTP/1.1\r\n\r\n", "application/http; msgtype=request"),
            answer(PAGE),
            answer("gone", status="404 Not Found"),
            answer(b"\xff\xd8", "image/jpeg"),
            answer("Plain words here.", "text/plain; charset=utf-8"),
            answer("<html><body></body></html>"),
        ]
        content = b"".join(gzip.compress(each) if packed else each for each in records)
        found = list(read_documents([put(tmp_path / f"a.warc{'.gz' if packed else ''}", content)]))
        page, missing, image, plain, empty = found
        assert isinstance(page, RawDocument)
        assert (page.title, page.place.line, page.text.count("\n")) == ("The River", 3, 3)
        assert "Imprint" not in page.text
        assert "Home" not in page.text
        assert isinstance(plain, RawDocument)
        assert plain.text == "Plain words here."
        assert page.url == plain.url == URL
        reasons = [(each.reason, each.by_kind) for each in (missing, image, empty) if isinstance(each, Dropped)]
        assert reasons == [("HTTP status", True), ("no page", True), ("no main text", False)]
        assert str(image.place).endswith(":5")

    def test_pages_are_unpacked_and_decoded_as_their_headers_say(self, tmp_path: Path) -> None:
        brotli, zstandard = pytest.importorskip("brotli"), pytest.importorskip("zstandard")
        text, plain = "Zwölf Boote.", "text/plain"
        pages = [
            answer(brotli.compress(text.encode()), plain, more="Content-Encoding: br\r\n"),
            answer(zstandard.ZstdCompressor().compress(text.encode()), plain, more="Content-Encoding: zstd\r\n"),
            answer(gzip.compress(text.encode()), plain, more="Content-Encoding: gzip\r\n"),
            answer(text.encode("latin-1"), f"{plain}; charset=iso-8859-1"),
            answer(text, f"{plain}; charset=iso-8859-1"),  # a wrong header
            answer(text.encode("latin-1"), plain),
            answer(text.encode("latin-1"), f"{plain}; charset=unheard-of"),
            answer(text.encode("latin-1"), f"{plain}; charset=undefined"),
            answer(b"?", plain, more="Content-Encoding: dcb\r\n"),
            answer(brotli.compress(text.encode())[:-3], plain, more="Content-Encoding: br\r\n"),
            answer(brotli.compress(bytes(50_000_000)), plain, more="Content-Encoding: br\r\n"),
            answer(text, plain, more="Content-Encoding: br\r\n"),  # unpacked by the crawler
            answer(gzip.compress(text.encode()), plain, more="Content-Encoding: x-gzip\r\n"),
            answer(text, plain, more="Content-Encoding: utf-8\r\n"),
            answer("日本".encode("iso-2022-jp"), f"{plain}; charset=ISO-2022-JP"),
            answer("“quoted”".encode("cp1252"), f"{plain}; charset=iso-8859-1"),
            answer("河流镕".encode("gb18030"), f"{plain}; charset=gb2312"),
        ]
        found = list(read_documents([put(tmp_path / "a.warc", b"".join(pages))]))
        assert [each.text for each in found[:5]] == [text] * 5
        reasons = [each.reason for each in found[5:11] if isinstance(each, Dropped)]
        wrong = "invalid UTF-8"
        assert reasons == [wrong, wrong, wrong, "unknown encoding", "damaged record", "page too long"]
        assert [each.text for each in found[11:]] == [text] * 3 + ["日本", "“quoted”", "河流镕"]

    def test_the_text_of_wet_files_is_read_as_it_is(self, tmp_path: Path) -> None:
        content = (
            record("warcinfo", b"x") + record("conversion", "One.\nZwölf.".encode()) + record("conversion", b"\xff")
        )
        one, dropped = read_documents([put(tmp_path / "CC-00000.warc.wet.gz", gzip.compress(content))])
        assert isinstance(one, RawDocument)
        assert (one.text, one.url) == ("One.\nZwölf.", URL)
        assert isinstance(dropped, Dropped)
        assert (dropped.reason, dropped.place.line) == ("invalid UTF-8", 3)

    def test_an_archive_that_breaks_off_is_an_error_with_the_record(self, tmp_path: Path) -> None:
        path = put(tmp_path / "a.warc", record("conversion", b"One.") + record("conversion", b"Two." * 99)[:-50])
        with pytest.raises(UserError, match=r"a\.warc: breaks off in record 2\. Fetch it again"):
            list(read_documents([path]))

    def test_headers_that_are_missing_or_wrong_are_an_error_in_a_sentence(self, tmp_path: Path) -> None:
        good = answer("gone", status="404 Not Found")
        for old, new in (
            (b"WARC-Target-URI: http://a/\r\n", b""),
            (b"Content-Length: 74", b"Content-Length: x"),
        ):
            path = put(tmp_path / "a.warc", record("conversion", b"One.") + good.replace(old, new))
            with pytest.raises(UserError, match=r"a\.warc: (cannot be read after|breaks off in) record \d"):
                list(read_documents([path]))
        (dropped,) = read_documents([put(tmp_path / "a.warc", good.replace(b"WARC-Type: response\r\n", b""))])
        assert isinstance(dropped, Dropped)
        assert (dropped.reason, dropped.by_kind) == ("damaged record", False)

    def test_what_is_no_archive_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(UserError, match=r"a\.warc: cannot be read and is no web archive"):
            list(read_documents([put(tmp_path / "a.warc", "One.\n\nTwo.\n")]))

    def test_a_page_is_read_without_its_menus(self, tmp_path: Path) -> None:
        (document,) = read_all(put(tmp_path / "a.html", PAGE))
        assert document.title == "The River"
        assert document.text.startswith("Paragraph 0 tells") or document.text.startswith("The River\nParagraph 0")
        assert "Home" not in document.text

    def test_pages_with_faults_are_dropped_and_no_library_complains(self, tmp_path: Path, caplog) -> None:
        nested = "<div>" * 5_000 + "x"
        for name, content in {"a": "", "b": nested, "c": b"\0\xff\xfe<"}.items():
            (dropped,) = read_documents([put(tmp_path / f"{name}.html", content)])
            assert isinstance(dropped, Dropped), name
            assert dropped.reason in ("no main text", "wrong HTML")
        assert caplog.records == []


class TestWikiDumps:
    @pytest.fixture(autouse=True)
    def needs_packages(self) -> None:
        pytest.importorskip("mwxml")
        pytest.importorskip("mwparserfromhell")

    def test_articles_are_text_with_headings_and_without_markup(self, tmp_path: Path) -> None:
        import bz2

        content = WIKI.format(page("Spree", ARTICLE)).encode()
        (document,) = read_all(put(tmp_path / "dewiki-pages-articles.xml.bz2", bz2.compress(content)))
        lines = document.text.split("\n")
        assert document.title == "Spree"
        assert lines == [
            "The Spree (a river) runs through the capital.",
            "Course",
            "Upper",
            "It is slow. Its length is 400 km < 500.",
            "one bend",
            "two bends",
        ]
        assert document.headings == {1, 2}

    def test_redirects_and_other_pages_are_counted(self, tmp_path: Path) -> None:
        pages = [
            page("A", "#REDIRECT [[B]]", more='<redirect title="B"/>'),
            page("Diskussion:B", "Talk.", space=1),
            page("B", "One."),
        ]
        redirect, talk, article = read_documents([put(tmp_path / "a.xml", WIKI.format("\n".join(pages)))])
        assert redirect == Dropped((f"{tmp_path}/a.xml", 1), "redirect", "'A' leads to 'B'", True)
        assert isinstance(talk, Dropped)
        assert (talk.reason, talk.by_kind) == ("no article", True)
        assert isinstance(article, RawDocument)
        assert (article.text, article.place.line) == ("One.", 3)
        strictly = read_documents([tmp_path / "a.xml"], ReadOptions(strict=True))
        assert [type(each) for each in strictly] == [Dropped, Dropped, RawDocument]

    def test_a_dump_that_breaks_off_is_an_error_with_the_page(self, tmp_path: Path) -> None:
        whole = WIKI.format(page("A", "One.") + page("B", "Two."))
        path = put(tmp_path / "a.xml", whole[: whole.index("Two.")])
        documents = read_documents([path])
        assert isinstance(next(documents), RawDocument)
        with pytest.raises(UserError, match=r"a\.xml: breaks off or is damaged, in or after page 2: "):
            list(documents)

    @pytest.mark.parametrize("content", ["<html><p>One.</p></html>", "no XML", ""])
    def test_other_xml_is_an_error(self, tmp_path: Path, content: str) -> None:
        with pytest.raises(
            UserError, match=r"a\.xml: (is no dump of MediaWiki|breaks off or is damaged, in or after page 0)"
        ):
            list(read_documents([put(tmp_path / "a.xml", content)]))

    def test_pages_that_were_read_are_not_kept(self, tmp_path: Path) -> None:
        path = put(tmp_path / "a.xml", WIKI.format(page("A", "One.") * 600))
        documents = read_documents([path])
        assert len(list(islice(documents, 600))) == 600
        assert sum(isinstance(each, Element) for each in gc.get_objects()) < 300


class TestTables:
    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("a.csv", 'id,title,text\n1,T,"One, ""two"".\nThree."\n2,,Four.\n'),
            ("a.tsv", 'id\ttitle\ttext\n1\tT\tOne, "two".\n2\t\tFour.\n'),
        ],
    )
    def test_rows_become_documents(self, tmp_path: Path, name: str, content: str) -> None:
        one, four = read_all(put(tmp_path / name, content))
        assert one.title == "T"
        assert one.text.split("\n") == ['One, "two".', "Three."][: 2 if name == "a.csv" else 1]
        assert (four.text, four.title, four.place.line) == ("Four.", "", 4 if name == "a.csv" else 3)

    def test_a_row_of_another_width_is_dropped_with_its_line(self, tmp_path: Path) -> None:
        _, dropped, _ = read_documents([put(tmp_path / "a.csv", "id,text\n1,One.\n2\n3,Three.\n")])
        assert dropped == Dropped((f"{tmp_path}/a.csv", 3), "wrong row", "has 1 cell, expected 2")

    @pytest.mark.parametrize(
        ("content", "why"),
        [
            ("a,b\n1,2\n", r"there is no column 'text'"),
            ('text\n"One', r"a\.csv:2: the row that begins here cannot be read"),
        ],
    )
    def test_what_is_no_table_of_texts_is_an_error(self, tmp_path: Path, content: str, why: str) -> None:
        with pytest.raises(UserError, match=why):
            list(read_documents([put(tmp_path / "a.csv", content)]))

    def test_columns_may_be_separated_by_another_character(self, tmp_path: Path) -> None:
        path = put(tmp_path / "a.csv", 'id;text\n1;"One; two."\n')
        (document,) = read_all(path, options=ReadOptions(delimiter=";"))
        assert document.text == "One; two."
        for wrong in (";;", '"', "\n"):
            with pytest.raises(UserError, match="delimiter: expected one character"):
                ReadOptions(delimiter=wrong)

    @pytest.mark.parametrize("writer", [pa.ipc.new_file, pa.ipc.new_stream])
    def test_arrow_files_and_streams_are_read(self, tmp_path: Path, writer: type) -> None:
        table = pa.table({"id": range(200), "text": [f"Text {i}." for i in range(200)], "title": ["T"] * 200})
        with writer(tmp_path / "a.arrow", table.schema) as file:
            file.write_table(table, max_chunksize=70)
        documents = read_all(tmp_path / "a.arrow")
        assert [(each.text, each.title, each.place.line) for each in documents[::199]] == [
            ("Text 0.", "T", 1),
            ("Text 199.", "T", 200),
        ]
        assert len(documents) == 200

    def test_a_damaged_arrow_file_is_an_error(self, tmp_path: Path) -> None:
        for content in (b"ARROW1 nothing", b"", b"text"):
            with pytest.raises(UserError, match=r"a\.arrow: cannot be read as an Arrow file"):
                list(read_documents([put(tmp_path / "a.arrow", content)]))

    def test_offsets_that_lead_out_of_an_arrow_file_are_an_error(self, tmp_path: Path) -> None:
        held = io.BytesIO()
        table = pa.table({"text": ["One.", "Two."]})
        with pa.ipc.new_file(held, table.schema) as file:
            file.write_table(table)
        offsets, wrong = (np.array(values, np.int32).tobytes() for values in ([0, 4, 8], [0, 1 << 30, 8]))
        assert held.getvalue().count(offsets) == 1
        path = put(tmp_path / "a.arrow", held.getvalue().replace(offsets, wrong))
        with pytest.raises(UserError, match=r"a\.arrow: cannot be read as an Arrow file after row 0: .*offset"):
            list(read_documents([path]))


class TestChoice:
    def test_every_format_has_a_name_that_the_options_accept(self) -> None:
        assert set(FORMATS) - {"text"} == set(FormatName.__args__) - {"auto", "tagged", "plain"}

    def test_files_that_often_describe_others_are_read_only_where_there_is_nothing_else(self, tmp_path: Path) -> None:
        for name, kept in {"a.html": "a.html", "b.json": "b.json", "c.warc": "c.warc", "d.txt": "d.txt"}.items():
            put(tmp_path / name, "x")
            with pytest.warns(Remark) if name != "a.html" else pytest.MonkeyPatch.context():
                (source,) = find_inputs([tmp_path])
            assert Path(source.name).name == kept

    def test_the_format_may_be_given_whatever_the_name(self, tmp_path: Path) -> None:
        (document,) = read_all(put(tmp_path / "a.txt", "text,id\nOne.,7\n"), options=ReadOptions(format="csv"))
        assert document.text == "One."

    def test_a_stream_is_recognized_by_its_content(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("warcio")
        arrow = io.BytesIO()
        table = pa.table({"text": ["Two."]})
        with pa.ipc.new_file(arrow, table.schema) as file:
            file.write_table(table)
        for content, text in ((gzip.compress(record("conversion", b"One.")), "One."), (arrow.getvalue(), "Two.")):
            path = put(tmp_path / "given", content)
            with path.open() as given:
                monkeypatch.setattr("sys.stdin", given)
                with streams_copied(find_inputs(["-"]), tmp_path / "out") as (source,):
                    (document,) = read_input(source)
            assert isinstance(document, RawDocument)
            assert document.text == text

    def test_a_packed_format_is_not_read_inside_a_compression(self) -> None:
        assert format_of_name("a.parquet.gz") is None
        assert format_of_name("a.csv.gz") is FORMATS["csv"]

    @pytest.mark.parametrize(("name", "package"), [("a.warc", "warcio"), ("a.html", "trafilatura"), ("a.xml", "mwxml")])
    def test_a_format_without_its_package_is_an_error_with_the_command_to_install_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, package: str
    ) -> None:
        for module in (package, f"{package}.archiveiterator"):
            monkeypatch.setitem(__import__("sys").modules, module, None)
        with pytest.raises(
            UserError, match=rf"{name}: needs {package} to be read: pip install 'ernie-continual\[web\]'"
        ):
            list(read_documents([put(tmp_path / name, "x")]))

    def test_a_package_that_lacks_another_is_not_said_to_be_missing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "trafilatura.py").write_text("import nowhere_at_all\n", encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.delitem(__import__("sys").modules, "trafilatura", raising=False)
        with pytest.raises(
            UserError, match=r"which cannot be imported \(No module named 'nowhere_at_all'\): pip install"
        ):
            list(read_documents([put(tmp_path / "a.html", "x")]))

"""Readers: every format yields its documents, and every fault is reported with file and line."""

from __future__ import annotations

import gzip
import html
import re
from datetime import date, time, timedelta
from decimal import Decimal
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.documents import put, put_json, read_all

from ernie.data import read_lines, read_text
from ernie.data.raw import Dropped, Fields, ReadOptions
from ernie.data.read import find_inputs, read_documents, read_input
from ernie.errors import Remark, UserError
from ernie.text.segment.base import Kind

NO_TITLES = ReadOptions(titles=False)
TAGGED = ReadOptions(format="tagged")


class TestPlainText:
    def test_blank_lines_separate_documents_and_lines_are_paragraphs(self, tmp_path):
        path = put(tmp_path / "a.txt", "One.\nStill one.\n\n  \n\nTwo.\n")
        assert [document.text for document in read_all(path)] == ["One.\nStill one.", "Two."]

    def test_a_document_is_placed_at_its_first_line(self, tmp_path):
        path = put(tmp_path / "a.txt", "\nOne.\n\n\nTwo.\n")
        assert [str(document.place) for document in read_all(path)] == [f"{path}:2", f"{path}:5"]

    @pytest.mark.parametrize(
        "text",
        [
            "One.\nMore.\n<|endoftext|>\nTwo.\n<|endoftext|>\n",
            "One.\nMore.<|endoftext|>Two.",
            "One.\r\nMore.\r\n<|endoftext|>\r\nTwo.\r\n",
            "<|endoftext|>One.\nMore.<|endoftext|><|endoftext|>\nTwo.<|endoftext|>",
        ],
    )
    def test_marks_of_the_end_of_a_text_separate_documents_and_are_noted(self, tmp_path, text):
        path = put(tmp_path / "a.txt", text.encode())
        with pytest.warns(Remark) as notes:
            assert [document.text for document in read_all(path)] == ["One.\nMore.", "Two."]
        line = text[: text.index("<|")].count("\n") + 1
        assert [str(note.message) for note in notes] == [
            f"{path}:{line}: <|endoftext|> is read as the end of a document, as blank lines are"
        ]

    @pytest.mark.parametrize(
        "tag",
        ["<DOC>", '<DOC id="AFP.0001" type="story" >', '<?xml version="1.0"?>', "<html>", "<doc><docno>1</docno>"],
    )
    def test_the_tags_of_other_formats_are_noted(self, tmp_path, tag):
        path = put(tmp_path / "a.txt", f"\n{tag}\n<TEXT>\nOne.\n</TEXT>\n</DOC>\n")
        with pytest.warns(Remark, match=f"a.txt: begins with {re.escape(tag)}, as SGML and XML do: its tags are read"):
            read_all(path)

    def test_a_short_first_line_without_a_full_stop_is_the_title(self, tmp_path):
        (document,) = read_all(put(tmp_path / "a.txt", "The Sea\nIt is wide.\n"))
        assert (document.title, document.text) == ("The Sea", "It is wide.")

    @pytest.mark.parametrize(
        "text", ["The sea is wide.\nIt is deep.", "The Sea", "你好吗？\n很好。", "w " * 60 + "\nEnd."]
    )
    def test_other_first_lines_are_not_titles(self, tmp_path, text):
        (document,) = read_all(put(tmp_path / "a.txt", text))
        assert (document.title, document.text) == ("", text)

    def test_titles_can_be_switched_off(self, tmp_path):
        (document,) = read_all(put(tmp_path / "a.txt", "The Sea\nIt is wide.\n"), options=NO_TITLES)
        assert document.text == "The Sea\nIt is wide."

    def test_a_byte_order_mark_and_windows_line_ends_are_ignored(self, tmp_path):
        path = put(tmp_path / "a.txt", b"\xef\xbb\xbfOne.\r\nMore.\r\n\r\nTwo.\r\n")
        assert [document.text for document in read_all(path)] == ["One.\nMore.", "Two."]

    @pytest.mark.parametrize("end", ["\r", "\n", "\r\n", "\u2028", "\x85", "\x0b", "\u2029"])
    def test_any_line_end_ends_paragraphs_and_doubled_documents(self, tmp_path, end):
        text = f"One is here. Two is here.{end}Three is here.{end}{end}Four is here. Five.{end}"
        read = read_all(put(tmp_path / "a.txt", text))
        assert [document.text for document in read] == [
            "One is here. Two is here.\nThree is here.",
            "Four is here. Five.",
        ]

    def test_line_ends_may_be_mixed(self, tmp_path):
        read = read_all(put(tmp_path / "a.txt", "One.\rTwo.\nThree.\r\n\r\nFour.\r\rFive.\n"))
        assert [document.text for document in read] == ["One.\nTwo.\nThree.", "Four.", "Five."]

    def test_carriage_returns_count_lines(self, tmp_path):
        read = read_all(put(tmp_path / "a.txt", "One.\r\rTwo.\r\r\rThree."))
        assert [document.place.line for document in read] == [1, 3, 6]

    @pytest.mark.parametrize("size", [50, 64, 100])
    def test_long_files_of_carriage_returns_are_read_in_pieces(self, tmp_path, monkeypatch, size):
        monkeypatch.setattr(read_lines, "MAX_LINE", size)
        lines = [f"Line {i} {'x' * (i % 30)}." for i in range(300)]
        (document,) = read_all(put(tmp_path / "a.txt", "\r".join(lines)), options=NO_TITLES)
        assert document.text.split("\n") == lines

    def test_the_end_of_a_page_within_a_text_ends_a_paragraph_and_no_document(self, tmp_path):
        read = read_all(put(tmp_path / "a.txt", "One.\n\fTwo.\fThree.\f\nFour.\n"))
        assert [document.text for document in read] == ["One.\nTwo.\nThree.\nFour."]

    def test_a_document_beyond_the_limit_is_cut_between_lines(self, tmp_path, monkeypatch):
        monkeypatch.setattr(read_text, "MAX_DOCUMENT", 20)
        path = put(tmp_path / "a.txt", "0123456789.\n" * 5)
        assert [document.text.count(".") for document in read_all(path)] == [2, 2, 1]

    def test_the_rest_of_a_cut_document_has_no_title(self, tmp_path, monkeypatch):
        monkeypatch.setattr(read_text, "MAX_DOCUMENT", 20)
        sea, sand = "The Sea\nIt is wide and deep.\nso\nit goes on, and on.\nand\non.", "Sand\nIs dry."
        found = read_all(put(tmp_path / "a.txt", f"{sea}\n\n{sand}\n"))
        assert [document.title for document in found] == ["The Sea", "", "", "Sand"]
        assert [document.text for document in found[1:3]] == ["so\nit goes on, and on.", "and\non."]

    @pytest.mark.parametrize("first", ["--", "***", "> It was the best of times, it was the worst of"])
    def test_rules_and_quoted_lines_are_no_titles(self, tmp_path, first):
        (document,) = read_all(put(tmp_path / "a.txt", f"{first}\n> times, it was so.\n"))
        assert (document.title, document.text) == ("", f"{first}\n> times, it was so.")

    @pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
    def test_text_in_utf16_without_a_byte_order_mark_is_dropped(self, tmp_path, encoding):
        (dropped,) = read_documents([put(tmp_path / "a.txt", "One is here.\n\nTwo.\n".encode(encoding))])
        assert dropped.reason == "invalid UTF-8"
        assert f"iconv -f {encoding.upper().replace('-', '').replace('UTF', 'UTF-')} -t UTF-8" in dropped.detail

    @pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
    @pytest.mark.parametrize("compress", [bytes, gzip.compress])
    def test_text_in_utf16_with_a_byte_order_mark_is_read(self, tmp_path, monkeypatch, encoding, compress):
        monkeypatch.setattr("ernie.data.read_lines._PIECE", 64)
        text = "\ufeffDer Fluß\r\nist langsam 😀.\r\n\r\n河很慢。\r\n" + "Lang. " * 50
        path = put(tmp_path / f"a.txt{'.gz' * (compress is not bytes)}", compress(text.encode(encoding)))
        found = read_all(path, options=NO_TITLES)
        assert [document.text.strip() for document in found] == [
            "Der Fluß\nist langsam 😀.",
            "河很慢。\n" + "Lang. " * 49 + "Lang.",
        ]

    def test_what_is_damaged_in_utf16_is_dropped_at_its_line(self, tmp_path):
        damaged = "\ufeffOne.\n\nTwo \ud800.\n\nThree.".encode("utf-16-le", "surrogatepass") + b"\x00"
        one, *dropped = read_documents([put(tmp_path / "a.txt", damaged)])
        assert one.text == "One."
        assert [(item.place.line, item.reason) for item in dropped] == [(3, "invalid UTF-8"), (5, "invalid UTF-8")]

    @pytest.mark.parametrize(
        ("content", "what"),
        [
            (b"PK\x03\x04\0\0\0\0\0\0", "a ZIP archive; unpack it with unzip"),
            (b"PAR1\x15\x04\x15\x9e", "a Parquet file; give it a name that ends in .parquet"),
            (b"\x93\x8a" + b"\0" * 50, "binary"),
        ],
    )
    def test_files_of_other_formats_are_named(self, tmp_path, content, what):
        (dropped,) = read_documents([put(tmp_path / "a.txt", content)])
        assert f"is not UTF-8 text, but {what}" in dropped.detail

    def test_files_that_were_joined_have_byte_order_marks_within(self, tmp_path):
        path = put(tmp_path / "a.txt", "\ufeffOne.\n\n\ufeffTwo.\n")
        assert [document.text for document in read_all(path)] == ["One.", "Two."]

    def test_a_document_that_is_not_utf8_is_dropped_at_its_bad_line(self, tmp_path):
        path = put(tmp_path / "a.txt", b"Good.\n\nStill fine.\nna\xefve\nMore.\n\nGood again.\n")
        first, dropped, last = read_documents([path])
        assert dropped == Dropped((str(path), 4), "invalid UTF-8", "byte 3 of the line is not UTF-8 text")
        assert (first.text, last.text) == ("Good.", "Good again.")

    def test_an_overlong_line_is_dropped(self, tmp_path, monkeypatch):
        monkeypatch.setattr(read_lines, "MAX_LINE", 1000)
        path = put(tmp_path / "a.txt", b"Good.\n\n" + b"x" * 5000 + b"\n\nGood again.\n")
        _, dropped, last = read_documents([path])
        assert (dropped.reason, dropped.place.line, last.text) == ("line too long", 3, "Good again.")

    @given(
        st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1), min_size=1, max_size=4))
    )
    def test_no_text_is_lost(self, tmp_path_factory, paragraphs):
        paragraphs = [[line for line in document if line.strip()] for document in paragraphs]
        expected = ["\n".join(document) for document in paragraphs if document]
        path = put(tmp_path_factory.mktemp("plain") / "a.txt", "\n\n".join(expected))
        found = read_all(path, options=NO_TITLES)
        without_marks = ["\n".join(line.removeprefix("\ufeff") for line in text.split("\n")) for text in expected]
        assert [document.text for document in found] == without_marks


WIKI = """<doc id="12" url="http://x?curid=12" title="Salt &amp; Water">
Salt &amp; Water

Salt dissolves in water.

History.
The Romans knew it.
It was known before.
Uses in cooking.
Kitchens use it.
</doc>
<doc id="13" title="Sand">
Sand

Sand does not.
</doc>
"""


class TestWikiExtractor:
    def test_blocks_are_documents_with_titles_and_headings(self, tmp_path):
        salt, sand = read_all(put(tmp_path / "wiki_00", WIKI.replace("Salt &amp; Water\n\n", "Salt & Water\n\n")))
        assert (salt.title, sand.title) == ("Salt & Water", "Sand")
        lines = salt.text.split("\n")
        assert lines[0] == "Salt dissolves in water."
        assert [lines[i] for i in sorted(salt.headings)] == ["History", "Uses in cooking"]
        assert (salt.place.line, sand.place.line, sand.text) == (1, 12, "Sand does not.")

    @pytest.mark.parametrize(
        "title", ['"Weird Al" Yankovic', "A > B", 'The "Sea"', "a=b", "", "Salt &amp; Water", "é <i>x</i>"]
    )
    @pytest.mark.parametrize("more", ["", ' lang="en"'])
    def test_a_title_may_contain_markup_characters(self, tmp_path, title, more):
        opening = f'<doc id="1" url="http://x?curid=1" title="{title}"{more}>'
        block = f"{opening}\n{html.unescape(title)}\n\nSand is dry.\n</doc>\n"
        (document,) = read_all(put(tmp_path / "a.txt", block))
        assert (document.title, document.text) == (html.unescape(title), "Sand is dry.")

    def test_a_document_beyond_the_limit_is_cut_and_keeps_its_title(self, tmp_path, monkeypatch):
        monkeypatch.setattr(read_text, "MAX_DOCUMENT", 20)
        block = '<doc title="Sand">\nSand\n' + "It is very dry, and warm.\n" * 3 + "</doc>\n"
        found = read_all(put(tmp_path / "a.txt", block + '<doc title="Salt">\nSalt\nIt is white.\n</doc>\n'))
        assert [document.title for document in found] == ["Sand"] * 3 + ["Salt"]
        assert [document.text for document in found[:3]] == ["It is very dry, and warm."] * 3

    def test_bodies_are_unescaped_and_the_title_is_not_kept_twice(self, tmp_path):
        body = "R&amp;D\n\nAT&amp;T wrote &quot;x &lt; y&quot; &#38; &amp;lt;. It works.&#10;So?\nA &copy b &nosuch;.\n"
        (document,) = read_all(put(tmp_path / "a.txt", f'<doc id="1" url="u" title="R&amp;D">\n{body}</doc>\n'))
        assert document.title == "R&D"
        assert document.text == 'AT&T wrote "x < y" & &lt;. It works. So?\nA &copy b &nosuch;.'

    def test_short_sentences_are_not_headings(self, tmp_path):
        (document,) = read_all(put(tmp_path / "a.txt", "<doc>\nHe was tall.\nAnd so it went on for years.\n</doc>\n"))
        assert document.headings == frozenset()

    @pytest.mark.parametrize("opening", ['<doc id="1" title="Sand">', '  <doc id="1" title="Sand">'])
    def test_text_beside_the_tags_is_kept(self, tmp_path, opening):
        text = f"{opening}Sand is dry. So.</doc>\n{opening} Sand is here.\nAnd there.</doc> It blows.\n"
        found = read_all(put(tmp_path / "a.txt", text))
        assert [(document.title, document.text.strip()) for document in found] == [
            ("Sand", "Sand is dry. So."),
            ("Sand", "Sand is here.\nAnd there.</doc> It blows."),
        ]

    @pytest.mark.parametrize("before", [1, 8])
    def test_text_may_stand_before_the_first_tag(self, tmp_path, before):
        text = "It was long.\n" * before + '<doc id="1" url="u" title="Sand">\nSand\n\nSand is dry.\n\nSo.\n</doc>\n'
        first, sand = read_all(put(tmp_path / "a.txt", text))
        assert first.text == "\n".join(["It was long."] * before)
        assert (sand.title, sand.text, sand.place.line) == ("Sand", "Sand is dry.\nSo.", before + 1)

    def test_an_entity_of_many_digits_stays_as_it_is(self, tmp_path):
        entity = f"&#{'9' * 5000};"
        (document,) = read_all(
            put(tmp_path / "a.txt", f'<doc id="1" title="{entity}">\n{entity}\n\nIt is {entity}\n</doc>\n')
        )
        assert (document.title, document.text) == (entity, f"It is {entity}")

    def test_a_tag_may_follow_the_last_one_of_a_file_without_a_line_end(self, tmp_path):
        text = WIKI.rstrip() + WIKI
        assert [document.title for document in read_all(put(tmp_path / "a.txt", text))] == ["Salt & Water", "Sand"] * 2

    def test_text_after_a_tag_may_end_as_one(self, tmp_path):
        (document,) = read_all(put(tmp_path / "a.txt", '<doc id="1" title="Sand">Sand is <b>dry</b>\nSo.\n</doc>\n'))
        assert (document.title, document.text) == ("Sand", "Sand is <b>dry</b>\nSo.")

    def test_a_very_long_line_is_no_tag(self, tmp_path):
        line = "<doc " + 'title="a ' * 20_000 + ">"  # quadratic time would be far longer
        (document,) = read_all(put(tmp_path / "a.txt", f'<doc id="1">\nIt is.\n{line}\n'))
        assert document.text == f"It is.\n{line}"

    def test_a_sentence_about_the_tag_is_text(self, tmp_path):
        found = read_all(put(tmp_path / "a.txt", "<doc> is a tag. It opens <b>.\n\nAnd </doc> closes.\n"))
        assert [document.text for document in found] == ["<doc> is a tag. It opens <b>.", "And </doc> closes."]

    def test_an_unclosed_block_is_kept(self, tmp_path):
        (document,) = read_all(put(tmp_path / "a.txt", '<doc title="Sand">\nSand\n\nSand is dry.\n'))
        assert (document.title, document.text) == ("Sand", "Sand is dry.")


class TestTaggedText:
    def test_words_and_entities_come_from_the_tags(self, tmp_path):
        path = put(tmp_path / "a.txt", "江/nr  泽民/nr  在/p  北京/ns  讲话/v  。/w\n")
        (document,) = read_all(path, options=TAGGED)
        assert document.text == "江泽民在北京讲话。"
        named = [(document.text[start:end], int(kind)) for start, end, kind in document.spans]
        assert [text for text, kind in named if kind == 0] == ["江", "泽民", "在", "北京", "讲话", "。"]
        assert [text for text, kind in named if kind == 2] == ["江泽民", "北京"]

    def test_span_offsets_continue_across_paragraphs(self, tmp_path):
        path = put(tmp_path / "a.txt", "今天/t  好/a  。/w\n北京/ns  好/a  。/w\n")
        (document,) = read_all(path, options=TAGGED)
        entities = [document.text[start:end] for start, end, kind in document.spans if kind == 2]
        assert entities == ["北京"]

    def test_a_new_article_number_begins_a_document_and_is_not_text(self, tmp_path):
        path = put(
            tmp_path / "a.txt",
            "19980101-01-001-001/m  好/a  。/w\n19980101-01-001-002/m  是/v\n19980101-01-002-001/m  不/d\n",
        )
        assert [document.text for document in read_all(path, options=TAGGED)] == ["好。\n是", "不"]

    def test_a_title_after_a_finished_paragraph_begins_a_document(self, tmp_path):
        path = put(tmp_path / "a.txt", "天气/n\n今天/t  好/a  。/w\n新闻/n\n没有/v  。/w\n")
        assert [(d.title, d.text) for d in read_all(path, options=TAGGED)] == [("天气", "今天好。"), ("新闻", "没有。")]

    def test_the_format_is_detected_from_the_first_lines(self, tmp_path):
        lines = ["", "天气/n", "今天/t  [天气/n  台/n]nt  好/a  。/w", *["好/a  。/w"] * 3, "或/和 plain."]
        path = put(tmp_path / "a.txt", "\n".join(lines))
        assert [(d.title, d.text) for d in read_all(path)] == [("天气", "今天天气台好。\n好。\n好。\n好。\n或plain.")]
        assert "今天/t" in read_all(path, options=ReadOptions(format="plain"))[0].text

    def test_text_with_slashes_is_not_tagged_text(self, tmp_path):
        path = put(tmp_path / "a.txt", "He and/or she reads his/her books.\nAnd/or not.\n")
        assert [document.text for document in read_all(path)] == ["He and/or she reads his/her books.\nAnd/or not."]

    def test_words_of_other_languages_are_joined_by_spaces_and_spans_shift(self, tmp_path):
        (document,) = read_all(put(tmp_path / "a.txt", "It/PRP is/VBZ slow/JJ\nAnna/NNP sees/VBZ it/PRP\n"))
        assert (document.title, document.text) == ("It is slow", "Anna sees it")
        assert [document.text[start:end] for start, end, _ in document.spans] == ["Anna", "sees", "it"]
        assert document.annotated == (Kind.WORD,)

    def test_punctuation_is_attached_to_its_word(self, tmp_path):
        tagged = "He/PRP does/VBZ n't/RB (/( yet/RB )/) say/VB :/: ``/`` it/PRP 's/VBZ $/$ 5/CD ,/, 東京/NN へ/IN ./.\n"
        (document,) = read_all(put(tmp_path / "a.txt", tagged), options=TAGGED)
        assert document.text == "He doesn't (yet) say: ``it's $5,東京へ."
        assert [document.text[start:end] for start, end, _ in document.spans][-4:] == [",", "東京", "へ", "."]

    def test_a_foreign_word_in_chinese_text_adds_no_spaces(self, tmp_path):
        (document,) = read_all(put(tmp_path / "a.txt", "我们/r  用/v  Windows/nx  98/m  系统/n  ……/w  ”/w\n"))
        assert document.text == "我们用Windows98系统……”"
        assert document.annotated == (Kind.WORD, Kind.ENTITY)

    def test_the_rest_of_a_cut_document_has_no_title(self, tmp_path, monkeypatch):
        monkeypatch.setattr(read_text, "MAX_DOCUMENT", 5)
        path = put(tmp_path / "a.txt", "天气/n\n" + "好/a  吧/y\n" * 9 + "\n天气/n\n好/a  。/w\n")
        titles = [document.title for document in read_all(path, options=TAGGED)]
        assert titles == ["天气", "", "", "天气"]

    def test_brackets_of_compounds_are_not_text(self, tmp_path):
        (document,) = read_all(put(tmp_path / "a.txt", "[中央/n  电台/n]nt  。/w\n"), options=TAGGED)
        assert document.text == "中央电台。"


class TestJsonLines:
    def test_text_or_paragraphs_with_a_title(self, tmp_path):
        path = put_json(
            tmp_path / "a.jsonl", {"text": "One.\nMore.", "title": " A  b "}, {"paragraphs": ["Two.", "More."]}
        )
        assert [(d.text, d.title, d.place.line) for d in read_all(path)] == [
            ("One.\nMore.", "A b", 1),
            ("Two.\nMore.", "", 2),
        ]

    @pytest.mark.parametrize(("title", "expected"), [(3, "3"), (3.5, "3.5"), (None, ""), (0, "0")])
    def test_a_number_as_title_is_kept_as_text(self, tmp_path, title, expected):
        (document,) = read_all(put_json(tmp_path / "a.jsonl", {"text": "x", "title": title}))
        assert (document.text, document.title) == ("x", expected)

    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            (3, "a number"),
            (None, "nothing"),
            (["a"], "a list of texts"),
            ([1], "a list with a number"),
            ({"a": 1}, "an object"),
            (True, "true or false"),
            ([], "an empty list"),
        ],
    )
    def test_the_type_of_what_is_no_text_is_named(self, tmp_path, text, kind):
        (dropped,) = read_documents([put_json(tmp_path / "a.jsonl", {"text": text})])
        assert f"'text' holds {kind}" in dropped.detail

    def test_a_name_with_full_stops_leads_into_objects(self, tmp_path):
        nested = {"meta": {"doc": {"body": "One."}, "head": "T"}, "other": 1}
        path = put_json(tmp_path / "a.jsonl", nested, {"meta.doc.body": "Two."}, {"meta": 3})
        options = ReadOptions(fields=Fields(text="meta.doc.body", title="meta.head"))
        one, two, dropped = read_documents([path], options)
        assert [(one.text, one.title), two.text] == [("One.", "T"), "Two."]
        assert "no text under 'meta.doc.body'" in dropped.detail

    def test_a_first_paragraph_that_is_the_title_is_not_kept_twice(self, tmp_path):
        rows = [{"title": "Town", "text": "Town\n\nIt is small."}, {"title": "Town", "text": "Town"}]
        read = read_all(put_json(tmp_path / "a.jsonl", *rows))
        assert [(document.title, document.text) for document in read] == [("Town", "It is small."), ("Town", "Town")]

    def test_other_line_ends_within_a_text_end_paragraphs(self, tmp_path):
        (document,) = read_all(put_json(tmp_path / "a.jsonl", {"text": "One\rTwo\u2028Three\x85Four\r\nFive"}))
        assert [line.strip() for line in document.text.split("\n")] == ["One", "Two", "Three", "Four", "Five"]

    def test_spans_keep_their_places_whatever_ends_the_lines(self, tmp_path):
        text = "Ann\rsings"
        (document,) = read_all(put_json(tmp_path / "a.jsonl", {"text": text, "spans": [[4, 9, "phrase"]]}))
        assert document.text[4:9] == "sings"

    def test_field_names_can_be_chosen(self, tmp_path):
        path = put_json(tmp_path / "a.jsonl", {"body": "One.", "head": "T"})
        (document,) = read_all(path, options=ReadOptions(fields=Fields(text="body", title="head")))
        assert (document.text, document.title) == ("One.", "T")

    def test_headings_are_paragraph_numbers(self, tmp_path):
        path = put_json(tmp_path / "a.jsonl", {"paragraphs": ["One.", "History", "Two."], "headings": [1]})
        assert read_all(path)[0].headings == {1}

    def test_a_paragraph_of_several_lines_shifts_the_headings_after_it(self, tmp_path):
        path = put_json(tmp_path / "a.jsonl", {"paragraphs": ["One.\nMore.", "History", "Two."], "headings": [1]})
        (document,) = read_all(path)
        assert [document.text.split("\n")[line] for line in document.headings] == ["History"]

    def test_spans_mark_the_text(self, tmp_path):
        path = put_json(tmp_path / "a.jsonl", {"text": "Anna sings.", "spans": [[0, 4, "entity"], [5, 10, "word"]]})
        (document,) = read_all(path)
        assert document.spans.tolist() == [[0, 4, 2], [5, 10, 0]]
        assert document.annotated == (0, 1, 2)

    @pytest.mark.parametrize(
        ("line", "reason", "detail"),
        [
            ('{"text": "broken', "not JSON", "the line is not JSON"),
            ("[1, 2]", "wrong fields", "expected an object"),
            ('{"body": "x"}', "no text", "keys: body"),
            ('{"text": 3}', "no text", "no text under 'text'"),
            ('{"\\ud800x": 3}', "no text", r"keys: \ud800x"),
            ('{"text": "x", "title": ["T"]}', "wrong fields", "'title' is no text, but a list of texts"),
            ('{"text": "x", "headings": "History"}', "wrong fields", "'headings' is not a list of paragraph numbers"),
            ('{"text": "x", "headings": 0}', "wrong fields", "'headings' is not a list of paragraph numbers"),
            ('{"text": "x", "headings": [true]}', "wrong fields", "'headings' is not a list of paragraph numbers"),
            (
                '{"text": "x\\ny", "headings": [0, 2]}',
                "wrong fields",
                "'headings' names paragraph 2, and they are numbered from 0 to 1",
            ),
            (
                '{"paragraphs": ["x"], "headings": [-1]}',
                "wrong fields",
                "'headings' names paragraph -1, and they are numbered from 0 to 0",
            ),
            ('{"text": "\\ud800"}', "invalid UTF-8", "half a surrogate pair"),
            ('{"text": "x", "spans": [[0, 2, "word"]]}', "wrong spans", "<= 1, the length of the text"),
            ('{"text": "x", "spans": [[0, 1, "verb"]]}', "wrong spans", "kind word, phrase, entity"),
            ('{"text": "x", "spans": 1}', "wrong spans", "expected a list"),
            ('{"text": "x", "spans": ["\\ud800"]}', "wrong spans", r"found '\ud800'"),
        ],
    )
    def test_a_bad_line_is_dropped_with_its_place(self, tmp_path, line, reason, detail):
        path = put(tmp_path / "a.jsonl", f'{{"text": "Good."}}\n{line}\n{{"text": "Good again."}}\n')
        _, dropped, last = read_documents([path])
        assert (dropped.place, dropped.reason) == ((str(path), 2), reason)
        assert detail in dropped.detail
        assert last.text == "Good again."

    def test_strict_stops_at_the_first_bad_line(self, tmp_path):
        path = put(tmp_path / "a.jsonl", '{"text": "Good."}\nnonsense\n')
        with pytest.raises(UserError, match=r"a\.jsonl:2: the line is not JSON"):
            list(read_documents([path], ReadOptions(strict=True)))


class TestGzip:
    def test_text_and_json_lines_may_be_gzipped(self, tmp_path):
        put(tmp_path / "a.txt.gz", gzip.compress(b"One.\n\nTwo."))
        put(tmp_path / "b.jsonl.gz", gzip.compress(b'{"text": "Three."}'))
        assert [document.text for document in read_all(tmp_path)] == ["One.", "Two.", "Three."]

    def test_a_truncated_file_is_an_error_that_says_how_far_reading_got(self, tmp_path):
        whole = gzip.compress("".join(f"Line {i} {i * 7919 % 1000}.\n" for i in range(5000)).encode())
        path = put(tmp_path / "a.txt.gz", whole[: len(whole) // 2])
        with pytest.raises(
            UserError, match=r"a\.txt\.gz: the gzip file breaks off after line [1-9][\d,]*\. Fetch it again"
        ):
            list(read_documents([path]))

    def test_a_gzip_file_of_another_name_is_recognized(self, tmp_path):
        [dropped] = read_documents([put(tmp_path / "a.txt", gzip.compress(b"One."))])
        assert isinstance(dropped, Dropped)
        assert "not UTF-8 text, but compressed; unpack it with gzip -dc" in dropped.detail

    def test_a_file_that_is_not_gzip_is_an_error(self, tmp_path):
        path = put(tmp_path / "a.txt.gz", "plain text")
        with pytest.raises(UserError, match=r"is not a gzip file, though its name says so; take \.gz off it"):
            list(read_documents([path]))


class TestParquet:
    def test_rows_are_documents(self, tmp_path):
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"text": ["One.", "Two."], "title": ["A", None], "other": [1, 2]}), path)
        assert [(d.text, d.title, str(d.place)) for d in read_all(path)] == [
            ("One.", "A", f"{path}:1"),
            ("Two.", "", f"{path}:2"),
        ]

    def test_paragraphs_may_be_a_list_column(self, tmp_path):
        pq.write_table(pa.table({"paragraphs": [["One.", "Two."]]}), tmp_path / "a.parquet")
        assert [document.text for document in read_all(tmp_path)] == ["One.\nTwo."]

    @pytest.mark.parametrize(
        "kind",
        [
            pa.binary(),
            pa.large_binary(),
            pa.large_string(),
            pa.string_view(),
            pa.dictionary(pa.int32(), pa.string()),
            pa.dictionary(pa.int8(), pa.binary()),
        ],
        ids=str,
    )
    def test_texts_and_titles_may_be_of_any_type_for_text(self, tmp_path, kind):
        made = pa.array([b"One.", "Zwölf.".encode()]).cast(pa.string()).cast(kind)
        pq.write_table(pa.table({"text": made, "title": made}), tmp_path / "a.parquet")
        assert [(document.text, document.title) for document in read_all(tmp_path)] == [
            ("One.", "One."),
            ("Zwölf.", "Zwölf."),
        ]

    def test_binary_text_that_is_not_utf8_is_dropped(self, tmp_path):
        pq.write_table(pa.table({"text": pa.array([b"Good.", b"caf\xe9"])}), tmp_path / "a.parquet")
        first, dropped = read_documents([tmp_path])
        assert (first.text, dropped.reason) == ("Good.", "invalid UTF-8")
        assert "byte 4" in dropped.detail

    @pytest.mark.parametrize(
        ("titles", "expected"),
        [
            ([1984], "1984"),
            ([2.5], "2.5"),
            ([float("nan")], ""),
            ([True], "True"),
            ([date(2020, 1, 2)], "2020-01-02"),
            ([time(3, 30)], "03:30:00"),
            ([timedelta(days=1)], "1 day, 0:00:00"),
            ([Decimal("1.50")], "1.50"),
        ],
    )
    def test_a_title_of_another_type_is_kept_as_text(self, tmp_path, titles, expected):
        pq.write_table(pa.table({"text": ["The river runs."], "title": titles}), tmp_path / "a.parquet")
        (document,) = read_all(tmp_path)
        assert (document.text, document.title) == ("The river runs.", expected)

    @pytest.mark.parametrize(
        ("column", "kind"),
        [
            (pa.array([3]), "a number"),
            (pa.nulls(1), "nothing"),
            (pa.array([["One."]]), "a list of texts"),
            (pa.array([{"a": 1}]), "an object"),
            (pa.array([date(2020, 1, 2)]), "a date"),
            (pa.array([True]), "true or f"),
            (pa.array([float("nan")]), "no number (NaN)"),
            (pa.array([[b"One.", None]]), "a list with nothing (null)"),
        ],
    )
    def test_a_column_without_text_is_named_with_its_type(self, tmp_path, column, kind):
        pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
        (dropped,) = read_documents([tmp_path])
        assert f"'text' holds {kind}" in dropped.detail

    def test_a_column_of_structs_is_entered_by_a_name_with_full_stops(self, tmp_path):
        pq.write_table(pa.table({"meta": [{"text": "One.", "n": 1}]}), tmp_path / "a.parquet")
        (document,) = read_all(tmp_path, options=ReadOptions(fields=Fields(text="meta.text")))
        assert document.text == "One."

    def test_spans_may_be_a_list_of_structs(self, tmp_path):
        spans = [{"start": 0, "end": 4, "kind": "entity"}]
        pq.write_table(pa.table({"text": ["Anna sings."], "spans": [spans]}), tmp_path / "a.parquet")
        assert read_all(tmp_path)[0].spans.tolist() == [[0, 4, 2]]

    def test_a_row_that_is_not_utf8_is_dropped(self, tmp_path):
        column = pa.array([b"Good.", b"caf\xe9", b"Good again."]).view(pa.string())
        pq.write_table(pa.table({"title": ["A", "B", "C"], "text": column}), tmp_path / "a.parquet")
        first, dropped, last = read_documents([tmp_path])
        assert (first.text, last.text, last.title) == ("Good.", "Good again.", "C")
        place = (f"{tmp_path}/a.parquet", 2)
        assert dropped == Dropped(place, "invalid UTF-8", "column 'text': byte 4 is not UTF-8 text")

    def test_progress_is_proportional_to_the_rows(self, tmp_path):
        pq.write_table(pa.table({"text": ["One."] * 128}), tmp_path / "a.parquet")
        (source,) = find_inputs([tmp_path])
        steps: list[int] = []
        assert len(list(read_input(source, progress=steps.append))) == 128
        assert sorted(set(steps)) == [round(source.size / 2), source.size]

    def test_a_file_without_a_text_column_is_an_error_that_lists_its_columns(self, tmp_path):
        pq.write_table(pa.table({"texts": ["One."]}), tmp_path / "a.parquet")
        with pytest.raises(UserError, match="no column 'text' and none 'paragraphs'; its columns are texts"):
            list(read_documents([tmp_path]))

    def test_a_damaged_file_is_an_error(self, tmp_path):
        path = put(tmp_path / "a.parquet", b"PAR1 nothing")
        with pytest.raises(UserError, match="cannot be read as a Parquet file"):
            list(read_documents([path]))


class TestDatasets:
    def test_a_saved_data_set_is_read(self, tmp_path):
        datasets.Dataset.from_dict({"text": ["One.", "Two."]}).save_to_disk(tmp_path / "set")
        assert [document.text for document in read_all(tmp_path / "set")] == ["One.", "Two."]

    def test_binary_texts_and_numbers_as_titles_are_read(self, tmp_path):
        table = pa.table({"text": pa.array([b"One."]), "title": [7]})
        datasets.Dataset(table).save_to_disk(tmp_path / "set")
        assert [(document.text, document.title) for document in read_all(tmp_path / "set")] == [("One.", "7")]

    def test_rows_of_a_saved_data_set_that_are_not_utf8_are_dropped(self, tmp_path):
        texts = [b"Good.", b"caf\xe9", *[b"Good again."] * 200]
        table = pa.table({"id": range(202), "text": pa.array(texts).view(pa.string())})
        datasets.Dataset(table).save_to_disk(tmp_path / "set")
        first, dropped, *others = read_documents([tmp_path / "set"])
        assert (first.text, len(others), others[-1].place.line) == ("Good.", 200, 202)
        assert dropped == Dropped((f"{tmp_path}/set", 2), "invalid UTF-8", "column 'text': byte 4 is not UTF-8 text")

    def test_text_that_is_not_utf8_in_a_streamed_data_set_is_an_error_with_a_remedy(self, tmp_path):
        (tmp_path / "set").mkdir()
        column = pa.array([b"Good.", b"caf\xe9"]).view(pa.string())
        pq.write_table(pa.table({"text": column}), tmp_path / "set" / "train.parquet")
        with pytest.raises(UserError, match=r"set: text after row 1 is not UTF-8, .* save_to_disk"):
            list(read_documents([f"hf:{tmp_path / 'set'}"]))

    def test_all_splits_of_a_saved_data_set_are_read(self, tmp_path):
        splits = {name: datasets.Dataset.from_dict({"text": [name]}) for name in ("train", "test")}
        datasets.DatasetDict(splits).save_to_disk(tmp_path / "set")
        assert {document.text for document in read_all(tmp_path / "set")} == {"train", "test"}

    def test_a_data_set_is_loaded_by_name_and_split(self, tmp_path):
        put_json(tmp_path / "set" / "train.jsonl", {"text": "One."})
        put_json(tmp_path / "set" / "test.jsonl", {"text": "Two."})
        assert [document.text for document in read_all(f"hf:{tmp_path / 'set'}")] == ["One."]
        (document,) = read_all(f"hf:{tmp_path / 'set'}::test")
        assert (document.text, document.place.line) == ("Two.", 1)

    def test_an_unknown_data_set_is_an_error(self, tmp_path):
        with pytest.raises(UserError, match="the data set cannot be loaded"):
            list(read_documents([f"hf:{tmp_path / 'none'}"]))


class TestInputs:
    def test_folders_are_searched_in_a_fixed_order(self, tmp_path):
        for name in ("b/2.txt", "b/1.jsonl", "a/wiki_01", "c.txt.gz", "b/notes.md", ".hidden/x.txt"):
            put(tmp_path / name, "")
        found = [Path(source.name).relative_to(tmp_path).as_posix() for source in find_inputs([tmp_path])]
        assert found == ["a/wiki_01", "b/1.jsonl", "b/2.txt", "c.txt.gz"]

    def test_the_endings_of_files_that_are_not_read_are_noted(self, tmp_path):
        for name in ("a.txt", "b.md", "sub/c.tsv", "sub/D.TXT", ".git/e.cfg", "LICENSE"):
            put(tmp_path / name, "One.")
        unread = r"files that end in \.md and files without a suffix \(1\) are not read as text"
        left_out = r"1 file of other formats left out, since there are texts: 1 \.tsv\. A pattern reads them, such as"
        with pytest.warns(Remark, match=unread) as notes:
            assert len(find_inputs([tmp_path])) == 2
        with pytest.warns(Remark, match=left_out):
            find_inputs([tmp_path])
        with pytest.warns(Remark, match=r"/\*: files that end in \.md and files without a suffix \(1\) are not read"):
            assert len(find_inputs([tmp_path / "*"])) == 1
        assert len(notes) == 2

    def test_what_could_be_read_and_is_left_out_is_counted_by_its_endings(self, tmp_path):
        for name in ("README.txt", "a.warc.gz", "b/c.warc.gz", "t.csv", "x.png"):
            put(tmp_path / name, "One.")
        left_out = r"3 files of other formats left out, since there are texts: 2 \.warc\.gz, 1 \.csv\. A pattern reads"
        with pytest.warns(Remark, match=left_out + r" them, such as '\*\*/\*\.warc\.gz'"):
            (source,) = find_inputs([tmp_path])
        assert source.name.endswith("README.txt")

    def test_a_suffix_may_be_in_capitals(self, tmp_path):
        put(tmp_path / "A.TXT.GZ", gzip.compress(b"one\n"))
        put(tmp_path / "B.JSONL", '{"text": "two"}\n')
        assert [document.text for document in read_documents([tmp_path])] == ["one", "two"]

    def test_files_made_by_this_library_are_not_read_as_text(self, tmp_path):
        generated = (
            "tok/tokenizer_config.json",
            "tok/vocab.txt",
            "c/corpus.json",
            "c/sources.json",
            "c/tokenizer/vocab.txt",
        )
        for name in (*generated, "run/origin.json", "run/metrics.jsonl", "mine/corpus.json", "mine/a.txt", "b.txt"):
            put(tmp_path / name, "")
        with pytest.warns(Remark, match="was made by this library and is not read as text") as notes:
            found = [Path(source.name).relative_to(tmp_path).as_posix() for source in find_inputs([tmp_path])]
        assert found == ["b.txt", "mine/a.txt"]
        own = [str(note.message) for note in notes if "was made by" in str(note.message)]
        assert [Path(message.split(":")[0]).name for message in own] == ["c", "run", "tok"]

    def test_patterns_match_files(self, tmp_path):
        for name in ("x/1.txt", "x/y/2.txt", "x/3.md"):
            put(tmp_path / name, "")
        found = [Path(source.name).name for source in find_inputs([f"{tmp_path}/**/*"])]
        assert found == ["1.txt", "2.txt"]

    @pytest.mark.parametrize(
        ("make", "given_path", "message"),
        [
            ("a.txt", "b.txt", "b.txt: there is no such file or folder"),
            ("a.pdf", "a.pdf", "expected a name that ends in"),
            ("a.pdf", ".", "the folder holds no file"),
            ("a.csv", "*.txt", "no file matches this pattern"),
            ("a.txt", "a.txt/b.txt", "b.txt: there is no such file or folder"),
            ("a.txt", "x" * 5000, "may not be read: File name too long"),
            ("a.txt", "a\0.txt", "is no name of a file: embedded null byte"),
        ],
    )
    def test_a_path_without_readable_files_is_an_error(self, tmp_path, make, given_path, message):
        put(tmp_path / make, "x")
        with pytest.raises(UserError, match=message):
            find_inputs([tmp_path / given_path])

    def test_an_empty_path_is_an_error_and_not_the_working_folder(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        put(tmp_path / "a.txt", "x")
        with pytest.raises(UserError, match="an input is empty"):
            find_inputs([""])

    @pytest.mark.parametrize("again", ["books/a.txt", "books/*.txt", "books"])
    def test_a_file_given_by_two_paths_is_an_error(self, tmp_path, again):
        put(tmp_path / "books" / "a.txt", "x")
        with pytest.raises(UserError, match=f"a.txt: is given twice, by .*books and by .*{re.escape(again)}: "):
            find_inputs([tmp_path / "books", tmp_path / again])

    @pytest.mark.parametrize("again", ["books/../books/a.txt", "link.txt"])
    def test_a_file_given_again_by_another_name_is_an_error(self, tmp_path, again):
        put(tmp_path / "books" / "a.txt", "x")
        (tmp_path / "link.txt").symlink_to("books/a.txt")
        with pytest.raises(UserError, match=r"is given twice, by .*books.*, as .*a\.txt and by .*would count twice"):
            find_inputs([tmp_path / "books", f"{tmp_path}/{again}"])

    def test_a_file_that_cannot_be_read_is_an_error(self, tmp_path):
        (tmp_path / "a.txt").symlink_to(tmp_path / "a.txt")
        with pytest.raises(UserError, match=r"a\.txt: "):
            list(read_documents([tmp_path / "a.txt"]))

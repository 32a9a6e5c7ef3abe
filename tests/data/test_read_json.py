"""JSON in files of any name is read as JSON, or refused: its syntax never becomes text without a word."""

from __future__ import annotations

import bz2
import json
from pathlib import Path

import pytest
from support.documents import put, put_json, read_all

from ernie.data import read_json, read_lines
from ernie.data.raw import Dropped, ReadOptions
from ernie.data.read import read_documents
from ernie.errors import Remark, UserError

TOWN = {"id": "1", "url": "u", "title": "Town", "text": "Town\n\nIt is small. Anna lives there."}
RIVER = {"id": "2", "url": "u", "title": "River", "text": "River\n\nIt is long."}
TEXTS = ["It is small. Anna lives there.", "It is long."]
LINES = "".join(json.dumps(row) + "\n" for row in (TOWN, RIVER))
FORMS = {
    "lines": LINES,
    "lines after a blank one": f"\n\n{LINES}",
    "with a byte order mark": f"\ufeff{LINES}",
    "lines without an end": LINES.rstrip("\n"),
    "a list": json.dumps([TOWN, RIVER]),
    "an indented list": json.dumps([TOWN, RIVER], indent=2),
    "indented objects": json.dumps(TOWN, indent=1) + "\n" + json.dumps(RIVER, indent=1),
    "objects side by side": json.dumps(TOWN) + json.dumps(RIVER),
    "a list, a row a line": f"[\n{json.dumps(TOWN)},\n{json.dumps(RIVER)}\n]\n",
}


@pytest.mark.parametrize("name", ["AA/wiki_00", "a.txt", "a.jsonl", "a.json", "bare"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_json_is_read_under_every_name(tmp_path: Path, name: str, form: str) -> None:
    path = put(tmp_path / name, FORMS[form])
    read = read_all(path)
    assert [document.text.strip() for document in read] == TEXTS
    assert [document.title for document in read] == ["Town", "River"]


def test_a_compressed_file_of_wikiextractor_is_json_too(tmp_path: Path) -> None:
    put(tmp_path / "AA" / "wiki_00.bz2", bz2.compress(LINES.encode()))
    assert [document.title for document in read_all(tmp_path)] == ["Town", "River"]


def test_bodies_of_wikiextractor_are_unescaped(tmp_path: Path) -> None:
    row = {"id": "1", "url": "u", "title": "R&D", "text": "R&amp;D\n\nAT&amp;T &lt;sold&gt;."}
    wiki = put_json(tmp_path / "wiki_00", row, {**row, "text": "AT&amp;T."})
    assert [document.text.strip() for document in read_all(wiki)] == ["AT&T <sold>.", "AT&T."]
    other = put_json(tmp_path / "a.jsonl", row, {**row, "text": "Write &amp; for it."})
    assert [document.text.strip() for document in read_all(other)] == ["AT&T <sold>.", "Write &amp; for it."]


def test_an_object_a_document_has_its_line(tmp_path: Path) -> None:
    path = put(tmp_path / "a.json", json.dumps([TOWN, RIVER], indent=2))
    assert [document.place.line for document in read_all(path)] == [2, 8]


def test_lines_that_are_not_json_are_dropped_where_the_first_is(tmp_path: Path) -> None:
    for name in ("a.txt", "b.json", "wiki_01"):
        first, dropped = read_documents([put(tmp_path / name, json.dumps(TOWN) + '\n{"text": "broken\n')])
        assert (first.title, dropped.reason) == ("Town", "not JSON")


@pytest.mark.parametrize(
    "content", ['{"text": "broken\n', "{'text': 'a'}\n", '{\n "text": "a",\n}\n', '[{"text": "a"} {"text"']
)
def test_a_text_that_begins_like_json_and_is_none_is_refused(tmp_path: Path, content: str) -> None:
    path = put(tmp_path / "a.txt", content)
    with pytest.raises(UserError, match=r"a\.txt.*(begins like JSON|no JSON object)"):
        list(read_documents([path]))
    assert all(not isinstance(item, Dropped) for item in read_documents([path], ReadOptions(format="plain")))


def test_texts_in_brackets_and_braces_are_text(tmp_path: Path) -> None:
    for text in ("[1] Smith 1999.", "{{Infobox}} is a box.", '["a"] is a list.', "{x} is a set.", "[{x}] is odd."):
        assert read_all(put(tmp_path / "a.txt", text))[0].text == text


def test_json_after_text_is_noted_with_its_line(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt", f"A heading here.\n\n{LINES}")
    with pytest.warns(Remark, match=r"a\.txt:3: the line is an object of JSON, and is read as text"):
        assert len(read_all(path)) == 2


def test_a_list_that_breaks_off_is_an_error_with_its_line(tmp_path: Path) -> None:
    whole = json.dumps([TOWN, RIVER], indent=2)
    with pytest.raises(UserError, match=r"a\.json: breaks off: the list of JSON objects does not end"):
        list(read_documents([put(tmp_path / "a.json", whole[: whole.rindex("]")])]))
    with pytest.raises(UserError, match=r"b\.json:8: here begins no JSON object"):
        list(read_documents([put(tmp_path / "b.json", whole[:-30])]))


def test_a_json_document_of_other_things_names_them(tmp_path: Path) -> None:
    (dropped,) = read_documents([put(tmp_path / "a.json", '{"data": [{"text": "a"}], "version": 1}')])
    assert (dropped.reason, "keys: data, version" in dropped.detail) == ("no text", True)
    (dropped, *_) = read_documents([put(tmp_path / "b.json", '["One.", "Two."]')])
    assert dropped.reason == "wrong fields"


def test_documents_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_lines, "_PIECE", 7)
    rows = [{"text": f'Größe {i}, \\ "[{{'} for i in range(20)]
    path = put(tmp_path / "a.json", json.dumps(rows, indent=3, ensure_ascii=False))
    assert [document.text for document in read_all(path)] == [row["text"] for row in rows]
    monkeypatch.setattr(read_json, "MAX_LINE", 20)
    with pytest.raises(UserError, match=r"a\.json:2: here begins no JSON object of at most"):
        list(read_documents([path]))


def test_json_files_of_a_folder_are_read_where_it_holds_no_other_texts(tmp_path: Path) -> None:
    put_json(tmp_path / "one" / "a.json", TOWN)
    put_json(tmp_path / "two" / "a.json", TOWN)
    put(tmp_path / "two" / "b.txt", "A text.")
    assert [document.title for document in read_all(tmp_path / "one")] == ["Town"]
    with pytest.warns(Remark, match=r"1 file of other formats left out, since there are texts: 1 \.json\."):
        assert [document.text for document in read_all(tmp_path / "two")] == ["A text."]


def test_json_that_is_not_utf8_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    path = put(tmp_path / "a.json", json.dumps([TOWN]).encode("utf-16-le"))
    with pytest.raises(UserError, match=r"a\.json:1: byte 2 of the line is not UTF-8 text; iconv -f UTF-16LE"):
        list(read_documents([path]))
    later = put(tmp_path / "b.json", b'[\n{"text":\n "na\xefve"}]')
    with pytest.raises(UserError, match=r"b\.json:3: byte 5 of the line is not UTF-8 text"):
        list(read_documents([later]))


@pytest.mark.parametrize(
    "form", ['[{"text": "One.", "n": %s}, {"text": "Two."}]', '{"text": "One.", "n": %s}\n{"text": "Two."}']
)
def test_a_number_that_is_too_long_for_python_costs_no_document(tmp_path: Path, form: str) -> None:
    path = put(tmp_path / "a.json", form % ("9" * 5000))
    assert [document.text for document in read_all(path)] == ["One.", "Two."]


def test_lines_of_joined_files_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.json"):
        path = put(tmp_path / name, '\ufeff{"text": "One."}\n\ufeff{"text": "Two."}\n')
        assert [document.text for document in read_all(path)] == ["One.", "Two."]


def test_a_list_of_texts_is_named_with_the_way_to_read_it(tmp_path: Path) -> None:
    (dropped,) = read_documents([put(tmp_path / "a.jsonl", '{"text": ["One.", "Two."]}\n')])
    assert "'text' holds a list of texts (--set read.fields.paragraphs=text)" in dropped.detail

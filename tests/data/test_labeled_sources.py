"""Rows of JSON documents, questions on passages, Parquet and saved data sets; and how options change rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ernie.data.labeled.read import is_there, read_rows, read_split
from ernie.data.labeled.row import Row, RowOptions
from ernie.errors import UserError

CONTEXT = "The cat sat on the mat."


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rows(source: str, **options: Any) -> list[Row]:
    return read_split("train", [source], RowOptions(**options)).rows


def write_json(content: Any, name: str = "a.json", indent: int | None = None) -> str:
    Path(name).write_text(json.dumps(content, indent=indent, ensure_ascii=False), encoding="utf-8")
    return name


def squad(*questions: Any, context: Any = CONTEXT) -> dict[str, Any]:
    return {"version": "1", "data": [{"title": "Cats", "paragraphs": [{"context": context, "qas": list(questions)}]}]}


class TestJsonDocuments:
    @pytest.mark.parametrize("indent", [None, 2])
    def test_a_list_of_objects_is_rows_numbered_from_1(self, indent: int | None) -> None:
        name = write_json([{"text": "a"}, {"text": "b"}], indent=indent)
        assert [(row["text"], str(row.place)) for row in rows(name)] == [("a", "a.json:1"), ("b", "a.json:2")]

    def test_a_list_item_that_is_not_an_object_is_named_by_its_number(self) -> None:
        with pytest.raises(UserError, match=r"^a\.json:2: is not an object$"):
            rows(write_json([{"text": "a"}, "b", {"text": "c"}], indent=1))

    def test_json_lines_are_distinguished_from_a_document(self) -> None:
        Path("a.json").write_text('{"data": 1}\n{"data": 2}\n')
        assert [row["data"] for row in rows("a.json")] == [1, 2]
        Path("a.json").write_text('{"text": "one line"}')
        assert rows("a.json") == [{"text": "one line"}]
        Path("a.json").write_text('{"text": "a"}\n{"text": \n')
        with pytest.raises(UserError, match=r"a\.json:2: is not JSON"):
            rows("a.json")

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("text\tlabel\n", "is neither a JSON document nor JSON lines"),
            ('[{"text": "a"},', "is neither a JSON document nor JSON lines"),
            ('{\n"rows": []\n}', "is a JSON document, but neither a list of rows nor questions on passages"),
            ("[]", "there are no rows"),
            ('{"data": []}', "there are no rows"),
        ],
    )
    def test_the_error_of_an_unusable_document_says_what_it_lacks(self, content: str, message: str) -> None:
        Path("a.json").write_text(content)
        with pytest.raises(UserError, match=rf"^a\.json: {message}$"):
            rows("a.json")


class TestQuestions:
    def test_squad(self) -> None:
        answers = [{"text": "The cat", "answer_start": 0}, {"text": "cat", "answer_start": 4}]
        first = {"id": "q1", "question": "Who?", "answers": answers}
        second = {"id": "q2", "question": "When?", "answers": [], "is_impossible": True}
        assert rows(write_json(squad(first, second))) == [
            {
                "id": "q1",
                "context": CONTEXT,
                "question": "Who?",
                "answers": {"text": ["The cat", "cat"], "answer_start": [0, 4]},
            },
            {"id": "q2", "context": CONTEXT, "question": "When?", "answers": {"text": [], "answer_start": []}},
        ]

    def test_cmrc_answers_have_no_offsets_and_get_that_of_the_first_occurrence(self) -> None:
        question = {"query_id": 7, "query_text": "哪里？", "answers": ["北京", "中国", "上海"]}
        name = write_json([{"context_id": "T", "context_text": "他在中国北京。", "qas": [question], "title": "他"}])
        assert rows(name) == [
            {
                "id": "7",
                "context": "他在中国北京。",
                "question": "哪里？",
                "answers": {"text": ["北京", "中国", "上海"], "answer_start": [4, 2, -1]},
            }
        ]

    @pytest.mark.parametrize(
        ("document", "message"),
        [
            (squad({"id": "q"}), "there is no text under 'question'"),
            (
                squad({"question": "Who?", "answers": [{"text": "cat", "answer_start": 4}], "is_impossible": True}),
                "has is_impossible: true, and an answer",
            ),
            (squad("q"), "expected a question with a context of text"),
            (squad({"question": "Who?"}, context=None), "expected a question with a context of text"),
            (squad({"question": "Who?", "answers": [{"answer_start": 1}]}), "answers: an answer has no text"),
        ],
    )
    def test_a_malformed_question_is_named_by_its_number(self, document: Any, message: str) -> None:
        with pytest.raises(UserError, match=rf"^a\.json:1: question 1: {message}$"):
            rows(write_json(document))

    def test_questions_in_a_file_with_another_suffix_need_a_format(self) -> None:
        name = write_json(squad({"id": "q", "question": "Who?", "answers": []}), "dev.v2")
        assert rows(name, format="squad")[0]["question"] == "Who?"

    @pytest.mark.parametrize(
        ("article", "key"),
        [("x", "paragraphs"), ({"text": "a"}, "paragraphs"), ({"paragraphs": ["x"]}, "qas")],
    )
    def test_malformed_articles_are_an_error_and_not_skipped(self, article: Any, key: str) -> None:
        document = squad({"id": "q", "question": "Who?", "answers": []})
        document["data"].append(article)
        with pytest.raises(UserError, match=rf"^a\.json: expected questions on passages, with a list under '{key}'"):
            rows(write_json(document))


class TestParquet:
    def test_rows_are_numbered_from_1_and_null_becomes_none(self) -> None:
        pq.write_table(pa.table({"text": ["a", None], "tags": [["x"], []]}), "a.parquet")
        assert rows("a.parquet") == [{"text": "a", "tags": ["x"]}, {"text": None, "tags": []}]
        assert [row.place.line for row in rows("a.parquet")] == [1, 2]

    def test_a_cell_that_is_not_utf8_is_a_fault_of_its_row(self) -> None:
        words = pa.ListArray.from_arrays([0, 1, 3], pa.array([b"a", b"b", b"\xff"]).view(pa.string()))
        pq.write_table(pa.table({"id": [1, 2], "words": words}), "a.parquet")
        good, fault = read_rows("a.parquet", RowOptions())
        assert (good, str(fault)) == (
            {"id": 1, "words": ["a"]},
            "a.parquet:2: column 'words': byte 1 is not UTF-8 text",
        )

    def test_a_file_without_rows_has_none(self) -> None:
        pq.write_table(pa.table({"text": pa.array([], pa.string())}), "a.parquet")
        with pytest.raises(UserError, match="there are no rows"):
            rows("a.parquet")

    def test_a_file_that_is_not_parquet_is_named(self) -> None:
        Path("a.parquet").write_text("text\nno\n")
        with pytest.raises(UserError, match=r"^a\.parquet: cannot be read as a Parquet file: "):
            rows("a.parquet")


class TestSavedDataSets:
    features = datasets.Features(
        {
            "text": datasets.Value("string"),
            "label": datasets.ClassLabel(names=["bad", "good"]),
            "tags": datasets.Sequence(datasets.ClassLabel(names=["O", "B-X"])),
        }
    )
    saved = datasets.Dataset.from_dict(
        {"text": ["a", "b", "c"], "label": [1, 0, -1], "tags": [[0, 1], [], [-1]]}, features=features
    )

    def test_class_numbers_become_names_and_minus_1_becomes_none(self) -> None:
        self.saved.save_to_disk("saved")
        found = rows("saved")
        assert [row["label"] for row in found] == ["good", "bad", None]
        assert [row["tags"] for row in found] == [["O", "B-X"], [], [None]]
        assert str(found[1].place) == "saved:2"
        with pytest.raises(UserError, match="column 'label': expected text, found nothing"):
            found[2].text("label")

    def test_a_cell_that_is_not_utf8_is_a_fault_of_its_row(self) -> None:
        texts = [b"a", b"b\xff", *[b"c"] * 100]
        table = pa.table({"text": pa.array(texts).view(pa.string()), "label": [0, 0, *[1] * 100]})
        datasets.Dataset(table).cast_column("label", self.features["label"]).save_to_disk("saved")
        good, fault, *others = read_rows("saved", RowOptions())
        assert (good, str(fault)) == (
            {"text": "a", "label": "bad"},
            "saved:2: column 'text': byte 2 is not UTF-8 text",
        )
        assert [row["label"] for row in others] == ["good"] * 100

    def test_a_column_of_unknown_classes_can_be_renamed(self) -> None:
        self.saved.save_to_disk("saved")
        assert [row["gold"] for row in rows("saved", rename={"gold": "label"})] == ["good", "bad", None]

    def test_one_of_several_splits_is_named_after_the_folder(self) -> None:
        datasets.DatasetDict({"train": self.saved, "dev": self.saved.select([1])}).save_to_disk("saved")
        assert [row["text"] for row in rows("saved:dev")] == ["b"]
        assert [row["text"] for row in rows("saved:train[1:]")] == ["b", "c"]
        for source in ("saved", "saved:test"):
            with pytest.raises(UserError, match=r"^saved: has the splits train, dev; name one: saved:train$"):
                rows(source)

    def test_a_split_of_a_data_set_without_splits_is_rejected(self) -> None:
        self.saved.save_to_disk("saved")
        with pytest.raises(UserError, match="saved: is one data set without splits; give it without ':dev'"):
            rows("saved:dev")

    def test_a_folder_that_is_not_a_data_set_is_reported(self) -> None:
        Path("empty").mkdir()
        with pytest.raises(UserError, match="empty: cannot be read as a saved data set: "):
            rows("empty")


class TestHub:
    @pytest.mark.parametrize("source", ["hf:glue", "hf:", "hf:glue::train", "hf:a:b:c:d"])
    def test_the_error_of_a_malformed_source_names_the_expected_form(self, source: str) -> None:
        with pytest.raises(UserError, match=f"^{source}: expected hf:NAME:SPLIT or hf:NAME:CONFIG:SPLIT"):
            rows(source)


class TestOptions:
    row = Row({"one": "a", "two": 2, "tags": ["x", "y"], "label": "0"})

    def adapted(self, **options: Any) -> Row | None:
        return RowOptions(**options).adapt(self.row)

    def test_a_renamed_column_also_keeps_its_own_name(self) -> None:
        made = self.adapted(rename={"text": "one", "label": "two"})
        assert made == {"one": "a", "two": 2, "tags": ["x", "y"], "label": 2, "text": "a"}
        with pytest.raises(UserError, match=r"there is no column 'on'\. Did you mean 'one'\?"):
            self.adapted(rename={"text": "on"})

    def test_values_replace_cells_and_list_items_and_match_numbers_by_their_digits(self) -> None:
        table = {"label": {"0": "no"}, "two": {"2": "yes"}, "tags": {"x": "z"}, "away": {"a": "b"}}
        assert self.adapted(values=table) == {"one": "a", "two": "yes", "tags": ["z", "y"], "label": "no"}

    def test_rows_are_skipped_by_replaced_cells_and_new_column_names(self) -> None:
        assert self.adapted(rename={"gold": "label"}, values={"gold": {"0": "-"}}, skip={"gold": ("-",)}) is None
        assert self.adapted(rename={"gold": "label"}, skip={"gold": ("-",)}) is not None
        assert self.adapted(skip={"two": ("2",)}) is None
        assert self.adapted(skip={"away": ("2",)}) is not None

    @pytest.mark.parametrize("cell", ["", "  ", None, float("nan")])
    def test_an_empty_cell_is_skipped_as_two_quotes_whatever_represents_it(self, cell: object) -> None:
        assert RowOptions(skip={"label": ("",)}).adapt(Row({"label": cell})) is None
        assert RowOptions(skip={"label": ("-",)}).adapt(Row({"label": cell})) is not None

    def test_joined_and_composed_columns_can_be_replaced_and_skipped(self) -> None:
        options = {"join": {"tags": "+"}, "compose": {"both": "{one}{tags}"}}
        made = self.adapted(**options, values={"both": {"ax+y": "found"}})
        assert made is not None
        assert (made["tags"], made["both"]) == ("x+y", "found")

    def test_adapting_does_not_change_the_original_row(self) -> None:
        before = dict(self.row)
        self.adapted(rename={"text": "one"}, values={"tags": {"x": "z"}}, join={"tags": "-"})
        assert self.row == before

    def test_a_split_counts_skipped_rows_and_reports_when_none_is_left(self) -> None:
        Path("a.tsv").write_text("text\tlabel\na\t-\nb\tx\nc\t-\n")
        split = read_split("train", ["a.tsv"], RowOptions(skip={"label": ("-",)}))
        assert ([row["text"] for row in split.rows], split.skipped) == (["b"], 2)
        with pytest.raises(UserError, match=r"a\.tsv: there are no rows \(3 were skipped, see 'skip' and 'faulty'\)"):
            read_split("train", ["a.tsv"], RowOptions(skip={"label": ("-", "x")}))

    def test_a_row_that_cannot_be_adapted_is_a_fault(self) -> None:
        Path("a.jsonl").write_text('{"a": 1}\n{"b": 1}\n')
        with pytest.raises(UserError, match=r"^a\.jsonl:2: there is no column 'a'\. Known: b\.$"):
            rows("a.jsonl", rename={"text": "a"})

    def test_reading_stops_at_the_end_of_a_slice(self) -> None:
        Path("a.jsonl").write_text('{"a": 1}\nbroken\n')
        assert list(read_rows("a.jsonl[:1]", RowOptions())) == [{"a": 1}]


class TestParallelFiles:
    """Two files whose lines correspond, named with braces."""

    def write(self, folder: Path, **texts: str) -> str:
        for name, text in texts.items():
            (folder / f"train.{name}").write_text(text, encoding="utf-8")
        return f"{folder}/train.{{{','.join(texts)}}}"

    def test_lines_with_the_same_number_form_a_row(self, tmp_path: Path) -> None:
        source = self.write(tmp_path, de="ein Apfel\n\nzwei\n", en="an apple\nnothing\ntwo\n")
        found = read_split("train", [source], RowOptions()).rows
        assert found == [
            {"de": "ein Apfel", "en": "an apple"},
            {"de": "", "en": "nothing"},
            {"de": "zwei", "en": "two"},
        ]
        assert str(found[2].place) == f"{tmp_path}/train.de:3"
        assert read_split("train", [f"{source}[1:2]"], RowOptions()).rows == found[1:2]

    def test_files_of_different_lengths_are_reported_with_both_counts(self, tmp_path: Path) -> None:
        source = self.write(tmp_path, de="a\nb\nc\n", en="a\nb\n")
        with pytest.raises(UserError, match=r"train\.de has 3 lines, .*train\.en has 2 lines"):
            read_split("train", [source], RowOptions())

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        source = self.write(tmp_path, de="a\n").replace("{de}", "{de,en}")
        assert not is_there(source)
        with pytest.raises(UserError, match=r"train\.en: there is no such file"):
            read_split("train", [source], RowOptions())
        (tmp_path / "train.en").write_text("a\n")
        assert is_there(source)

    def test_a_line_that_is_not_utf8_is_a_fault_of_its_row(self, tmp_path: Path) -> None:
        source = self.write(tmp_path, de="a\nb\n", en="a\nb\n")
        (tmp_path / "train.en").write_bytes(b"a\n\xff\n")
        with pytest.raises(UserError, match=r"train\.de:2"):
            read_split("train", [source], RowOptions())


@pytest.mark.parametrize(("target", "why"), [("nowhere.tsv", "link to nowhere.tsv"), ("a.tsv", "back to itself")])
def test_a_link_that_leads_nowhere_is_named_as_one(tmp_path: Path, target: str, why: str) -> None:
    (tmp_path / "a.tsv").symlink_to(target)
    with pytest.raises(UserError, match=why):
        list(read_rows(str(tmp_path / "a.tsv"), RowOptions()))


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/urandom"])
def test_a_device_that_never_ends_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"{name}: is a device that never ends"):
        list(read_rows(name, RowOptions()))

"""`ernie predict`: one line per row, in the order of the rows, from any kind of input, as soon as it is ready."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from support.processes import start_ernie

from ernie.cli import main
from ernie.config import dump
from ernie.data.labeled.row import RowOptions
from ernie.errors import UserError
from finetune.config import load
from inference.task_model import TaskModel

ASKED = ["the film was bad", "very fine it was", "poor film", "good"]
RIGHT = ["blame", "praise", "blame", "praise"]


@pytest.fixture
def predict(work: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Runs `ernie predict done`, and returns the lines of output."""

    def run(*words: str, status: int = 0) -> list[str]:
        assert main(["predict", "done", *words]) == status
        return capsys.readouterr().out.splitlines()

    return run


def labels(lines: Sequence[str]) -> list[str]:
    return [json.loads(line)["label"] for line in lines]


def as_json(texts: Sequence[str], **more: Any) -> str:
    return "".join(json.dumps({"text": text, **more}) + "\n" for text in texts)


FORMATS = {
    "tsv": "text\tlabel\n" + "".join(f"{text}\tpraise\n" for text in ASKED),
    "csv": "label,text\r\n" + "".join(f'praise,"{text}"\r\n' for text in ASKED),
    "jsonl": as_json(ASKED, other=[1, 2]),
    "txt": "\ufeff" + "\n".join(ASKED),
    "json": json.dumps([{"text": text} for text in ASKED]),
}


@contextmanager
def filled_pipe(path: Path, content: str) -> Iterator[None]:
    """A named pipe into which the content is written."""
    os.mkfifo(path)
    writer = Thread(target=path.write_text, args=(content,), daemon=True)
    writer.start()
    yield
    writer.join()
    path.unlink()


class TestInput:
    @pytest.mark.parametrize("suffix", sorted(FORMATS))
    def test_every_format_gives_the_same_predictions(self, work: Path, predict: Any, suffix: str) -> None:
        (work / f"asked.{suffix}").write_text(FORMATS[suffix], encoding="utf-8")
        lines = predict("--input", f"asked.{suffix}")
        assert labels(lines) == RIGHT
        answers = list(TaskModel.load(work / "done").predict([{"text": text} for text in ASKED]))
        assert [json.loads(line) for line in lines] == answers

    def test_several_inputs_are_read_one_after_the_other(self, work: Path, predict: Any) -> None:
        (work / "a.tsv").write_text(FORMATS["tsv"], encoding="utf-8")
        (work / "b.jsonl").write_text(FORMATS["jsonl"], encoding="utf-8")
        assert labels(predict("--input", "b.jsonl", "--input", "a.tsv")) == [*RIGHT, *RIGHT]

    @pytest.mark.parametrize(
        ("name", "suffix"), [("pipe", "tsv"), ("pipe", "jsonl"), ("pipe", "txt"), ("a.tsv", "tsv")]
    )
    def test_pipes_are_read_like_standard_input(self, work: Path, predict: Any, name: str, suffix: str) -> None:
        with filled_pipe(work / name, FORMATS[suffix]):
            assert labels(predict("--input", name)) == RIGHT
        if suffix == "tsv":
            with filled_pipe(work / name, FORMATS[suffix]):
                assert labels(predict("--input", name, "--format", "tsv")) == RIGHT

    def test_standard_input_can_be_read_like_a_split(
        self, work: Path, predict: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        config = load(work / "done" / "config.yaml")
        data = replace(config.data, per_split={"dev": RowOptions(format="tsv", rename={"text": "said"})})
        (work / "done" / "config.yaml").write_text(dump(replace(config, data=data)), encoding="utf-8")
        (work / "asked").write_text(FORMATS["tsv"].replace("text", "said", 1), encoding="utf-8")
        with (work / "asked").open(encoding="utf-8") as file:
            monkeypatch.setattr("sys.stdin", file)
            assert labels(predict("--input", "-", "--like", "dev")) == RIGHT

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no disk that is always full")
    def test_a_full_disk_on_standard_output_is_reported(
        self, work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        file = Path("/dev/full").open("w", encoding="utf-8")  # noqa: SIM115 - closing it is an error
        monkeypatch.setattr("sys.stdout", file)
        assert main(["predict", "done", "--input", "test.tsv"]) == 2
        assert "ernie: error: standard output: the disk is full; the last answers" in capsys.readouterr().err
        with suppress(OSError):
            file.close()

    def test_unusable_rows_are_an_error_with_a_hint_or_are_skipped_and_counted(
        self, work: Path, predict: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (work / "a.jsonl").write_text('{"text": "bad"}\n{"text": null}\nno JSON\n{"text": "good"}\n', encoding="utf-8")
        assert main(["predict", "done", "--input", "a.jsonl"]) == 2
        captured = capsys.readouterr()
        assert labels(captured.out.splitlines()) == ["blame"]
        assert "a.jsonl:2: column 'text': expected text, found nothing\n(--faulty skip leaves out" in captured.err
        assert main(["predict", "done", "--input", "a.jsonl", "--faulty", "skip"]) == 0
        captured = capsys.readouterr()
        assert labels(captured.out.splitlines()) == ["blame", "praise"]
        first = "a.jsonl:2: column 'text': expected text, found nothing"
        assert f"note: 2 rows skipped, as 'skip' or 'faulty' asks; the first faulty one: {first}\n" in captured.err
        (work / "a.tsv").write_text("no name\ngood\nbad\n", encoding="utf-8")
        assert main(["predict", "done", "--input", "a.tsv"]) == 2
        assert "--columns names the columns of a file without a line of names)" in capsys.readouterr().err
        assert main(["predict", "done", "--input", "a.tsv", "--faulty", "skip"]) == 2
        assert "none of 2 rows can be used; the first faulty one: a.tsv:2: there is no" in capsys.readouterr().err

    def test_a_model_without_a_tokenizer_is_not_the_fault_of_a_row(
        self, work: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        shutil.copytree(work / "done", work / "without")
        shutil.rmtree(work / "without" / "model" / "tokenizer")
        (work / "without" / "model" / "sha256.json").unlink()  # which names the missing file
        assert main(["predict", "without", "--input", "test.tsv", "--faulty", "skip"]) == 2
        assert capsys.readouterr().err.startswith("ernie: error: this model has no tokenizer")

    def test_an_unknown_suffix_needs_the_format_and_a_file_without_a_header_the_columns(
        self, work: Path, predict: Any
    ) -> None:
        rows = "".join(f"1\t{text}\n" for text in ASKED)
        (work / "asked.gz").write_bytes(gzip.compress(rows.encode()))
        assert labels(predict("--input", "asked.gz", "--format", "tsv", "--columns", "number", "text")) == RIGHT

    def test_a_file_can_be_read_like_those_of_a_split(self, work: Path, predict: Any) -> None:
        (work / "asked.txt").write_text("".join(f"1;{text}\n" for text in ASKED), encoding="utf-8")
        config = load(work / "done" / "config.yaml")
        odd = RowOptions(format="tsv", columns=("number", "said"), delimiter=";", rename={"text": "said"})
        data = replace(config.data, per_split={"dev": odd})
        (work / "done" / "config.yaml").write_text(dump(replace(config, data=data)), encoding="utf-8")
        assert labels(predict("--input", "asked.txt", "--like", "dev")) == RIGHT

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (("--input", "a.tsv", "--like", "def"), "--like: the run's data has no split 'def'. Did you mean 'dev'?"),
            (("--input", "a.tsv", "--like", "dev", "--format", "csv"), "--like: the run's data says how rows are read"),
            (("--split", "dev", "--columns", "text"), "--split: the run's data says how rows are read"),
            (("--split", "dev", "--like", "dev"), "--like: is for --input"),
            (("--split", "dev", "--faulty", "skip"), "--faulty: is for --input"),
        ],
    )
    def test_conflicting_options_are_an_error(
        self, work: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
    ) -> None:
        assert main(["predict", "done", *words]) == 2
        assert message in capsys.readouterr().err

    @pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl", "txt"])
    def test_the_format_of_standard_input_is_detected_from_its_first_line(
        self, work: Path, predict: Any, monkeypatch: pytest.MonkeyPatch, suffix: str
    ) -> None:
        (work / "asked").write_text(FORMATS[suffix], encoding="utf-8")
        with (work / "asked").open(encoding="utf-8") as file:
            monkeypatch.setattr("sys.stdin", file)
            assert labels(predict("--input", "-")) == RIGHT

    def test_a_json_document_on_standard_input_is_not_read_as_text(
        self, work: Path, predict: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        for content in ('[{"text": "a film"}]\n', '[\n  {"text": "a film"}\n]\n'):
            (work / "asked").write_text(content, encoding="utf-8")
            with (work / "asked").open(encoding="utf-8") as file:
                monkeypatch.setattr("sys.stdin", file)
                assert main(["predict", "done", "--input", "-"]) == 2
            assert "standard input: begins as a JSON document does" in capsys.readouterr().err
        (work / "asked").write_text("[sic] a good film\n", encoding="utf-8")
        with (work / "asked").open(encoding="utf-8") as file:
            monkeypatch.setattr("sys.stdin", file)
            assert labels(predict("--input", "-")) == ["praise"]

    @pytest.mark.parametrize("text", ["{sic} a good film", "text, he wrote, and it was good"])
    def test_text_that_begins_as_data_does_is_read_as_text(
        self, work: Path, predict: Any, monkeypatch: pytest.MonkeyPatch, text: str
    ) -> None:
        (work / "asked.txt").write_text(f"{text}\na bad film\n", encoding="utf-8")
        assert labels(predict("--input", "asked.txt")) == ["praise", "blame"]
        with (work / "asked.txt").open(encoding="utf-8") as file:
            monkeypatch.setattr("sys.stdin", file)
            assert labels(predict("--input", "-")) == ["praise", "blame"]

    @pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl", "txt"])
    def test_the_format_of_a_text_file_is_detected_from_its_first_line(
        self, work: Path, predict: Any, suffix: str
    ) -> None:
        (work / "asked.txt").write_text(FORMATS[suffix], encoding="utf-8")
        assert labels(predict("--input", "asked.txt")) == RIGHT
        (work / "asked.txt.gz").write_bytes(gzip.compress(FORMATS[suffix].encode()))
        assert labels(predict("--input", "asked.txt.gz")) == RIGHT

    @pytest.mark.parametrize("name", ["-", "asked.txt"])
    def test_tabs_without_the_tasks_column_are_noted(
        self, work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
    ) -> None:
        (work / "asked.txt").write_text("review\tlabel\nbad film\tpraise\n", encoding="utf-8")
        with (work / "asked.txt").open(encoding="utf-8") as file:
            monkeypatch.setattr("sys.stdin", file)
            assert main(["predict", "done", "--input", name]) == 0
        captured = capsys.readouterr()
        assert len(labels(captured.out.splitlines())) == 2
        place = "standard input" if name == "-" else name
        assert f"note: {place}: its first line has tabs, but does not name a column 'text'" in captured.err

    def test_a_line_with_a_tab_may_be_text_and_a_single_csv_column_has_a_header(
        self, work: Path, predict: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for content, right in (("good\tvery good\n", ["praise"]), ("text\nbad film\n", ["blame"])):
            (work / "asked").write_text(content, encoding="utf-8")
            with (work / "asked").open(encoding="utf-8") as file:
                monkeypatch.setattr("sys.stdin", file)
                assert labels(predict("--input", "-")) == right

    def test_no_rows_give_no_lines(self, work: Path, predict: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        (work / "nothing.tsv").write_text("", encoding="utf-8")
        assert predict("--input", "nothing.tsv") == []
        with (work / "nothing.tsv").open(encoding="utf-8") as file:
            monkeypatch.setattr("sys.stdin", file)
            assert predict("--input", "-", "--to", "tsv") == []

    def test_a_split_of_the_runs_data_gives_the_predictions_of_its_file(self, predict: Any) -> None:
        assert predict("--split", "test") == predict("--input", "test.tsv")


class TestOutput:
    def test_the_order_of_the_rows_is_kept_whatever_their_length_and_the_batch_size(
        self, work: Path, predict: Any
    ) -> None:
        """More rows than are read at a time, so that there are several groups."""
        texts = ["very " * (k * 7 % 13) + ASKED[k % 4] + f" {k}" for k in range(1100)]
        (work / "many.jsonl").write_text(as_json(texts), encoding="utf-8")
        found = [
            [json.loads(line) for line in predict("--input", "many.jsonl", "--keep", "text", "--batch-tokens", size)]
            for size in ("8192", "64")
        ]
        for records in found:
            assert [record["text"] for record in records] == texts
        for large, small in zip(*found, strict=True):
            assert large["label"] == small["label"]
            assert large["probability"] == pytest.approx(small["probability"], abs=0.01)

    def test_kept_columns_come_first_and_do_not_overwrite_the_prediction(self, work: Path, predict: Any) -> None:
        (work / "asked.tsv").write_text("id\ttext\tlabel\n7\tbad film\tpraise\n", encoding="utf-8")
        (line,) = predict("--input", "asked.tsv", "--keep", "label", "id")
        record = json.loads(line)
        assert list(record) == ["given_label", "id", "label", "probability"]
        assert (record["given_label"], record["id"], record["label"]) == ("praise", "7", "blame")

    def test_the_probability_of_every_label_is_given_on_request(self, work: Path, predict: Any) -> None:
        (work / "asked.tsv").write_text("text\na bad film\n", encoding="utf-8")
        record = json.loads(predict("--input", "asked.tsv", "--all-labels")[0])
        assert list(record["all_labels"]) == ["blame", "praise"]
        assert record["all_labels"][record["label"]] == record["probability"]
        assert sum(record["all_labels"].values()) == pytest.approx(1, abs=2e-6)

    def test_tsv_begins_with_the_column_names_and_has_no_stray_tab(self, work: Path, predict: Any) -> None:
        (work / "asked.jsonl").write_text(as_json(["a\tbad\nfilm"], more={"ä": 1}), encoding="utf-8")
        assert predict("--input", "asked.jsonl", "--keep", "text", "more", "--to", "tsv")[0].split("\t") == [
            *("text", "more", "label", "probability")
        ]
        cells = predict("--input", "asked.jsonl", "--keep", "text", "more", "--to", "tsv")[1].split("\t")
        assert cells[:3] == ["a bad film", '{"ä": 1}', "blame"]

    def test_output_is_valid_json_even_if_a_kept_cell_is_nan_or_infinite(self, work: Path, predict: Any) -> None:
        (work / "a.jsonl").write_text('{"text": "bad", "note": NaN, "more": {"a": [1.5, -Infinity]}}\n')
        (line,) = predict("--input", "a.jsonl", "--keep", "note", "more")
        record = json.loads(line, parse_constant=pytest.fail)
        assert (record["note"], record["more"]) == (None, {"a": [1.5, "-inf"]})


class TestFaults:
    def test_a_kept_cell_that_cannot_be_written_is_reported_with_its_row(
        self, work: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (work / "a.jsonl").write_text('{"text": "bad", "note": "x"}\n{"text": "bad", "note": "\\ud800"}\n')
        assert main(["predict", "done", "--input", "a.jsonl", "--keep", "note"]) == 2
        captured = capsys.readouterr()
        assert len(captured.out.splitlines()) == 1
        assert "a.jsonl:2: holds half a surrogate pair" in captured.err

    @pytest.mark.parametrize(
        ("name", "content", "message"),
        [
            ("a.tsv", b"text\nbad\ngood\tx\n", "a.tsv:3: has 2 cells, expected 1: text"),
            ("a.txt", b"bad\nb\xe4d\n", "a.txt:2: byte 2 of the line is not UTF-8 text"),
            (
                "a.jsonl",
                b'{"text": "bad"}\n{"txt": "bad"}\n',
                "a.jsonl:2: there is no column 'text'. Did you mean 'txt'?",
            ),
            ("a.jsonl", b'{"text": "bad"}\n{"text": null}\n', "a.jsonl:2: column 'text': expected text, found nothing"),
            ("a.jsonl", b'{"text": "bad"}\n{"text"}\n', "a.jsonl:2: is not JSON"),
            (
                "a.jsonl",
                b'{"text": "bad"}\n{"text": "\\ud800"}\n',
                "a.jsonl:2: column 'text': holds half a surrogate pair",
            ),
            ("a.jsonl", b'{"text": "bad"}\n{"text": NaN}\n', "a.jsonl:2: column 'text': expected text, found nothing"),
        ],
    )
    @pytest.mark.parametrize("standard_input", [False, True])
    def test_an_invalid_row_is_reported_after_the_predictions_for_earlier_rows(
        self,
        work: Path,
        capsys: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
        name: str,
        content: bytes,
        message: str,
        standard_input: bool,
    ) -> None:
        (work / name).write_bytes(content)
        form = {"tsv": "tsv", "txt": "text", "jsonl": "jsonl"}[name.partition(".")[2]]
        with (work / name).open(encoding="utf-8") as file:
            monkeypatch.setattr("sys.stdin", file)
            words = ["--input", "-" if standard_input else name, "--format", form]
            assert main(["predict", "done", *words]) == 2
        captured = capsys.readouterr()
        assert labels(captured.out.splitlines()) == ["blame"]
        assert (message.replace(name, "standard input") if standard_input else message) in captured.err

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--input", "nowhere.tsv"], "nowhere.tsv: there is no such file or folder"),
            (["--input", "task.yaml"], "for another name say its format"),
            (["--input", "dev.tsv", "--keep", "txt"], "dev.tsv:2: there is no column 'txt'. Did you mean 'text'?"),
            (["--input", "dev.tsv", "--batch-tokens", "0"], "--batch-tokens: expected at least 1, found 0"),
            (["--input", "-", "--format", "parquet"], "--format parquet: cannot be read from standard input"),
            (["--split", "tset"], "the run's data has no split 'tset'. Did you mean 'test'?"),
            (["--submission", "there"], "the run's configuration names none"),
        ],
    )
    def test_invalid_options_are_an_error(
        self, work: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
    ) -> None:
        assert main(["predict", "done", *words]) == 2
        captured = capsys.readouterr()
        assert message in captured.err
        assert captured.out == ""
        assert not (work / "there").exists()


def test_python_computes_in_the_precision_of_the_command_in_every_thread(work: Path, predict: Any) -> None:
    (work / "asked.jsonl").write_text(FORMATS["jsonl"], encoding="utf-8")
    for words, keys in [((), {}), (("--precision", "fp32"), {"precision": "fp32"})]:
        expected = [json.loads(line) for line in predict("--input", "asked.jsonl", *words)]
        model = TaskModel.load(work / "done", **keys)
        found: list[Any] = []
        thread = Thread(target=lambda model=model, found=found: found.extend(model.predict(ASKED)))
        thread.start()
        thread.join()
        assert found == list(model.predict(ASKED)) == expected
    with pytest.raises(UserError, match="precision fp16: this machine computes in"):
        TaskModel.load(work / "done", precision="fp16")


def test_tabs_and_line_breaks_in_tsv_become_spaces_and_are_counted(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["a\tgood\r\nfilm", "two  spaces", "=HYPERLINK(1)", "-1.5", "+good"]
    (work / "in.jsonl").write_text(as_json(texts), encoding="utf-8")
    assert main(["predict", "done", "--input", "in.jsonl", "--keep", "text", "--to", "tsv"]) == 0
    captured = capsys.readouterr()
    kept = [line.split("\t")[0] for line in captured.out.split("\n")[1:-1]]
    assert kept == ["a good film", *texts[1:]]
    assert "note: 1 cell with tabs or line breaks, which TSV cannot hold: spaces stand for them" in captured.err
    assert "note: 2 cells that a spreadsheet would take for a formula, the first '=HYPERLINK(1)'" in captured.err


class TestSubmission:
    SUBMISSION = ("--set", "submission={files: {test: T.tsv, dev: D.tsv}, values: {blame: '0', praise: '1'}}")

    def test_submission_files_use_the_leaderboards_row_numbers_and_labels(
        self, work: Path, predict: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["finetune", "task.yaml", "--output", "done", "--quiet", *self.SUBMISSION]) == 0  # already trained
        capsys.readouterr()
        assert predict("--submission", "out/there") == ["out/there/T.tsv", "out/there/D.tsv"]
        lines = (work / "out" / "there" / "T.tsv").read_text(encoding="utf-8").splitlines()
        names = {"blame": "0", "praise": "1"}
        answers = labels(predict("--split", "test"))
        assert lines == ["index\tprediction", *(f"{i}\t{names[label]}" for i, label in enumerate(answers))]

    def test_the_file_of_a_split_that_the_run_lacks_is_skipped_with_a_note(
        self, work: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        more = "submission={files: {test: T.tsv, diagnostic: AX.tsv}}"
        assert main(["finetune", "task.yaml", "--output", "done", "--quiet", "--set", more]) == 0
        capsys.readouterr()
        assert main(["predict", "done", "--submission", "there"]) == 0
        captured = capsys.readouterr()
        assert captured.out == "there/T.tsv\n"
        assert "AX.tsv is not written: the run's data has no split diagnostic" in captured.err

    def test_a_split_with_an_error_leaves_no_file_behind(
        self, work: Path, predict: Any, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["finetune", "task.yaml", "--output", "done", "--quiet", *self.SUBMISSION]) == 0
        capsys.readouterr()
        with (work / "dev.tsv").open("a", encoding="utf-8") as file:
            file.write("torn\n")
        assert predict("--submission", "there", status=2) == []
        assert not (work / "there").exists()


class TestStream:
    """In separate processes, since these tests are about pipes between processes."""

    def test_each_line_is_answered_before_the_next_arrives_and_ctrl_c_ends_the_command(self, work: Path) -> None:
        with start_ernie(["predict", "done", "--input", "-"], work) as process:
            assert process.stdin is not None and process.stdout is not None and process.stderr is not None
            for text, label in zip(ASKED, RIGHT, strict=True):
                process.stdin.write(f"{text}\n".encode())
                process.stdin.flush()
                assert json.loads(process.stdout.readline())["label"] == label
            process.send_signal(signal.SIGINT)
            process.wait()
            assert process.returncode == 130
            assert process.stderr.read().decode().splitlines()[-1] == "ernie: interrupted"

    def test_a_closed_output_pipe_ends_the_command_silently(self, work: Path) -> None:
        (work / "many.txt").write_text("good film\n" * 20_000, encoding="utf-8")
        with start_ernie(["predict", "done", "--input", "many.txt"], work) as process:
            assert process.stdout is not None and process.stderr is not None
            assert json.loads(process.stdout.readline())["label"] == "praise"
            process.stdout.close()
            process.wait()
            assert process.returncode == 128 + signal.SIGPIPE
            assert "Error" not in process.stderr.read().decode()


def test_two_kept_columns_with_the_same_output_name_are_an_error(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (work / "in.tsv").write_text("text\tlabel\tgiven_label\ngood film\tpraise\tb\n")
    assert main(["predict", "done", "--input", "in.tsv", "--keep", "label", "given_label"]) == 2
    assert "--keep: two of label, given_label would be called alike" in capsys.readouterr().err


def test_truncated_rows_are_noted_once(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ["good", "very " * 40 + "good", "very " * 50 + "bad"]
    (work / "long.jsonl").write_text(as_json(rows), encoding="utf-8")
    assert main(["predict", "done", "--input", "long.jsonl"]) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 3
    assert "note: long.jsonl:2: is longer than max_len" in captured.err
    assert captured.err.count("is longer than") == 1

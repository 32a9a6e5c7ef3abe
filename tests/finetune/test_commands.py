"""Output, errors and exit status of `ernie finetune`, `evaluate` and `report`."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from threading import Thread

import pytest
from support.processes import start_ernie, wait_until

from ernie.cli import main
from ernie.model.ernie import ErnieModel
from ernie.train.log import read_records
from finetune.report.split_answers import read_split_answers, surest_mistakes
from inference.precision import precision_of
from inference.task_model import TaskModel


def test_finetune_prints_scores_on_stdout_and_everything_else_on_stderr(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["finetune", "task.yaml", "--output", "run", "--seed", "3"]) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[:2] == ["| split | accuracy |", "|---|---|"]
    assert "seed=3: accuracy" in captured.err
    assert "open run/report.html in a browser" in captured.err
    assert "<h2>Each label</h2>" in (work / "run" / "report.html").read_text(encoding="utf-8")
    assert main(["finetune", "task.yaml", "--output", "run", "--seed", "3", "--quiet"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "where should the run go? Give --output DIR"),
        (["--output", "run", "--model", ""], "model: which encoder? Give --model"),
        (["--output", "run", "--model", "train.tsv"], "train.tsv: is a file; give the folder of the model"),
        (["--output", "run", "--seeds", "0"], "seeds: expected at least 1, found 0"),
        (["--output", "run", "--set", "train.epoch=3"], "train.epoch: unknown key. Did you mean 'epochs'?"),
        (["--output", "run", "--set", "task.kind=clasify"], "Did you mean 'classify'?"),
        (["--output", "run", "--set", "data.dev="], "data.dev: expected text or a list, found nothing"),
        (["--output", "run", "--set", "train.task_id=99"], "train.task_id: expected a number below 16"),
    ],
)
def test_a_command_line_mistake_is_reported_and_nothing_is_written(
    work: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["finetune", "task.yaml", *words]) == 2
    assert message in capsys.readouterr().err
    assert not (work / "run").exists()


def test_all_unknown_keys_of_a_file_are_reported_with_their_lines(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "task:\n  kind: classify\n  txt: review\ndata:\n  train: train.tsv\n  dev: dev.tsv\nlearning_rate: 5e-5\n"
    (work / "wrong.yaml").write_text(text, encoding="utf-8")
    assert main(["finetune", "wrong.yaml", "--output", "run"]) == 2
    err = capsys.readouterr().err
    assert "wrong.yaml:3: task.txt: unknown key. Did you mean 'text'?" in err
    assert "wrong.yaml:7: learning_rate: unknown key." in err


class TestEvaluate:
    def test_a_split_has_the_scores_that_the_run_reports(self, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
        reported = json.loads((work / "done" / "scores.json").read_text(encoding="utf-8"))["best"]["scores"]
        for split, rows in (("dev", 50), ("test", 30)):
            assert main(["evaluate", "done", "--split", split]) == 0
            captured = capsys.readouterr()
            assert json.loads(captured.out) == {"rows": rows, **reported[split]}
            assert captured.err.startswith(f"split {split}: {rows} rows, ")

    def test_other_files_are_scored_together_and_their_predictions_written(
        self, work: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (work / "new.jsonl").write_text('{"text": "a bad film", "label": "praise"}\n', encoding="utf-8")
        words = ["evaluate", "done", "--input", "test.tsv", "new.jsonl", "--answers", "answers.jsonl", "--quiet"]
        assert main(words) == 0
        assert json.loads(capsys.readouterr().out) == {"rows": 31, "accuracy": pytest.approx(30 / 31)}
        answers = [json.loads(line) for line in (work / "answers.jsonl").read_text(encoding="utf-8").splitlines()]
        assert len(answers) == 31
        assert answers[-1]["label"] == "blame"

    def test_each_label_is_scored_on_request(self, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (work / "new.tsv").write_text("text\tlabel\na good film\tpraise\na bad film\tpraise\n", encoding="utf-8")
        assert main(["evaluate", "done", "--input", "new.tsv", "--by-label"]) == 0
        captured = capsys.readouterr()
        scores = json.loads(captured.out)
        assert scores["by_label"]["praise"] == {"precision": 1, "recall": 0.5, "f1": pytest.approx(2 / 3), "targets": 2}
        assert scores["by_label"]["blame"] == {"precision": 0, "recall": 0, "f1": 0, "targets": 0}
        assert "note: the rows: every row has the label 'praise'" in captured.err

    def test_a_missing_folder_for_the_answers_is_reported_before_anything_is_computed(
        self, work: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["evaluate", "done", "--answers", "away/answers.jsonl"]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert (
            captured.err == "ernie: error: --answers: away/answers.jsonl cannot be written: there is no folder away\n"
        )

    @pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no disk that is always full")
    def test_a_full_disk_names_the_answers_file_and_the_scores_are_still_printed(
        self, work: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["evaluate", "done", "--answers", "/dev/full", "--quiet"]) == 2
        captured = capsys.readouterr()
        assert json.loads(captured.out)["rows"] == 50
        assert "ernie: error: /dev/full: the disk is full; the answers were not written." in captured.err

    def test_inputs_may_be_given_separately_and_may_be_pipes(
        self, work: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        os.mkfifo("pipe")
        rows = "text\tlabel\na bad film\tblame\n"
        Thread(target=Path("pipe").write_text, args=(rows,), daemon=True).start()
        assert main(["evaluate", "done", "--input", "test.tsv", "--input", "pipe", "--quiet"]) == 0
        assert json.loads(capsys.readouterr().out)["rows"] == 31

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("text\ngood film\n", "other.tsv: the rows have nothing in a column 'label' to score against"),
            ("text\tlabel\n", "other.tsv: there are no rows"),
            ("text\tlabel\ngood\tpraise\nbad\tgrumble\n", "other.tsv:3: label 'grumble' is not one of blame, praise"),
        ],
    )
    def test_rows_that_cannot_be_scored_are_an_error(
        self, work: Path, capsys: pytest.CaptureFixture[str], content: str, message: str
    ) -> None:
        (work / "other.tsv").write_text(content, encoding="utf-8")
        assert main(["evaluate", "done", "--input", "other.tsv"]) == 2
        captured = capsys.readouterr()
        assert message in captured.err
        assert captured.out == ""

    def test_an_unknown_split_names_the_nearest(self, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["evaluate", "done", "--split", "tset"]) == 2
        assert "has no split 'tset'. Did you mean 'test'?" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["evaluate", "done"], ["predict", "done", "--split", "dev"]])
def test_only_what_says_how_answers_are_found_can_be_changed(
    command: list[str], work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for override, message in (
        ("task.max_len=64", "--set: task: max_len: cannot be changed after training"),
        ("task.beam=4", "--set: task.beam: unknown key"),
        ("train.epochs=3", "--set: train: in a finished run only keys of the task"),
        ("task=3", "--set: task: expected a mapping of keys, found 3"),
    ):
        assert main([*command, "--set", override]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("words", [["evaluate", "{}"], ["predict", "{}", "--split", "dev"]])
@pytest.mark.parametrize("folder", ["nowhere", "encoder", "pretrained"])
def test_a_folder_that_is_not_a_fine_tuning_run_is_a_one_line_error(
    work: Path, capsys: pytest.CaptureFixture[str], words: list[str], folder: str
) -> None:
    (work / "pretrained" / "model").mkdir(parents=True)
    (work / "pretrained" / "config.yaml").write_text("corpus: here\n", encoding="utf-8")
    assert main([word.format(folder) for word in words]) == 2
    message = "there is no such folder" if folder == "nowhere" else "is not the folder of a finished fine-tuning run"
    assert capsys.readouterr().err == f"ernie: error: {folder}: {message}\n"


@pytest.mark.parametrize("words", [["evaluate", "cut"], ["predict", "cut", "--split", "dev"], ["translate", "cut"]])
def test_a_run_that_is_not_finished_is_called_so(
    work: Path, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    (work / "cut" / "trials" / "seed=0").mkdir(parents=True)
    (work / "cut" / "config.yaml").write_text("seeds: 1\n", encoding="utf-8")
    assert main(words) == 2
    message = "the run in it is not finished; the same 'ernie finetune' command resumes it"
    assert capsys.readouterr().err == f"ernie: error: cut: {message}\n"


class TestReport:
    def test_the_report_path_of_a_fine_tuning_run_is_printed_or_the_report_copied(
        self, work: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["report", "done"]) == 0
        assert capsys.readouterr().out == "done/report.html\n"
        assert main(["report", "done", "--output", "page.html"]) == 0
        assert (work / "page.html").read_bytes() == (work / "done" / "report.html").read_bytes()

    def test_downstream_scores_are_only_for_the_report_of_a_pretraining_run(
        self, work: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(["report", "done", "--downstream", "done"]) == 2
        assert "--downstream: is for the run that pretrained an encoder" in capsys.readouterr().err

    def test_an_unfinished_run_says_how_to_continue(self, work: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (work / "done" / "report.html").unlink()
        assert main(["report", "done"]) == 2
        assert "is not done; give its command 'ernie finetune' again" in capsys.readouterr().err


class TestSignals:
    """Fine-tuning in a separate process that is stopped in the middle of its second trial."""

    @pytest.mark.parametrize(
        ("number", "status", "last"),
        [(signal.SIGTERM, 143, "ernie: terminated"), (signal.SIGINT, 130, "ernie: interrupted")],
    )
    def test_a_signal_ends_the_run_after_the_current_step_and_keeps_finished_trials(
        self, work: Path, number: signal.Signals, status: int, last: str
    ) -> None:
        # The second point of the grid would run far longer than the test.
        words = ["finetune", "task.yaml", "--output", "run", "--set", "grid={epochs: [1, 5000]}"]
        trials = work / "run" / "trials"
        with start_ernie(words, work) as process:
            log = trials / "epochs=5000,seed=0" / "metrics.jsonl"
            wait_until(lambda: log.is_file() and log.stat().st_size > 0, process)
            process.send_signal(number)
            lines = process.communicate()[1].decode().splitlines()
        assert process.returncode == status
        assert lines[-1] == last
        assert lines[-3].startswith(f"{number.name}: finishing this step and saving")
        assert lines[-2] == "stopped; the same command resumes from here"
        assert not [line for line in lines if "Traceback" in line or "C++" in line or "Error" in line]
        assert (trials / "epochs=1,seed=0" / "scores.json").is_file()
        assert not (trials / "epochs=5000,seed=0" / "scores.json").exists()
        assert len(list((trials / "epochs=5000,seed=0" / "checkpoints").iterdir())) == 1
        assert len(list(TaskModel.load(work / "run").predict([{"text": "a film"}]))) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("grid={peak: [2e-5, 2e-5]}", "grid: a value is listed twice"),
        ("train.adversarial={moves: 3}", "train.adversarial.moves: has no effect without an epsilon above 0"),
        ("grid={batch: [1, 4]}", "grid: batch: has no effect beside train.batch_tokens"),
        ("train.lr.each_stage=true", "lr.each_stage: fine-tuning has one stage"),
        ("plugins=5", "plugins: expected a list"),
        (
            "train={early_stopping_patience: 1, evaluations: 0}",
            "train.early_stopping_patience: has no effect with train.evaluations 0",
        ),
        ("data.skip={lable: ['-']}", "data.skip: no row has a column 'lable'. Did you mean 'label'?"),
        ("data.values={txt: {a: b}}", "data.values: no row has a column 'txt'. Did you mean 'text'?"),
        ("data.per_split={dev: {join: {words: ' '}}}", "data.per_split.dev.join: no row has a column 'words'"),
        (
            "data.columns=[text, label]",
            "train.tsv:1: this line names the columns as `columns` does; leave",
        ),
    ],
)
def test_settings_without_an_effect_are_refused(
    work: Path, capsys: pytest.CaptureFixture[str], change: str, message: str
) -> None:
    words = ["--set", change, *(["--set", "train.batch_tokens=64"] if "batch" in change else [])]
    assert main(["check", "task.yaml", *words]) == 2
    assert message in capsys.readouterr().err


def test_white_space_around_a_label_is_ignored(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (work / "train.tsv").read_text(encoding="utf-8")
    (work / "train.tsv").write_text(text.replace("\tblame\n", "\tblame \n", 20), encoding="utf-8")
    assert main(["check", "task.yaml"]) == 0
    assert "ok: labels: blame, praise" in capsys.readouterr().out.splitlines()


def test_a_changed_weight_or_dropout_of_the_encoder_is_noticed(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["finetune", "task.yaml", "--output", "done", "--quiet"]
    assert main(command) == 0
    file = work / "encoder" / "config.json"
    before = file.read_text(encoding="utf-8")
    shape = json.loads(before)
    dropout = next(key for key in shape if key.endswith("dropout") or key.endswith("dropout_prob"))
    (work / "encoder" / "sha256.json").unlink()  # changed on purpose
    file.write_text(json.dumps({**shape, dropout: 0.5}), encoding="utf-8")
    assert main(command) == 2
    assert "trained on other inputs under the same name: model changed since" in capsys.readouterr().err
    file.write_text(before, encoding="utf-8")
    model = ErnieModel.from_pretrained(work / "encoder")
    model.embedding.position.weight.set_value(model.embedding.position.weight * 2)
    model.save_pretrained(work / "encoder")
    assert main(command) == 2
    assert "model changed since" in capsys.readouterr().err


def test_a_run_trained_in_fp32_predicts_in_fp32(work: Path) -> None:
    assert precision_of(work / "done", None) == "auto"
    words = ["--set", "train.precision=fp32", "--set", "train.epochs=1", "--output", "run", "--quiet"]
    assert main(["finetune", "task.yaml", *words]) == 0
    assert precision_of(work / "run", None) == "fp32"
    assert precision_of(work / "run", "bf16") == "bf16"
    assert precision_of(work / "run" / "model", None) == "auto"


def test_an_empty_column_is_not_called_missing(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "dev.jsonl").write_text('{"text": "good", "label": null}\n')
    assert main(["check", "task.yaml", "--set", "data.dev=dev.jsonl"]) == 2
    assert "data.dev: no row has anything in the column 'label' to judge by" in capsys.readouterr().err


def test_skipped_rows_are_counted_and_a_submission_with_them_is_refused(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with (work / "test.tsv").open("a") as file:
        file.write("torn\tpraise\tmore\n")
    data = "{train: train.tsv, dev: dev.tsv, test: test.tsv, faulty: skip}"
    words = ["--set", f"data={data}", "--set", "submission={files: {test: T.tsv}}", "--set", "train.epochs=1"]
    assert main(["finetune", "task.yaml", "--output", "torn", "--quiet", *words]) == 0
    capsys.readouterr()
    assert main(["predict", "torn", "--split", "test"]) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 30
    assert "1 row skipped" in captured.err
    assert main(["predict", "torn", "--submission", "out"]) == 2
    assert "1 row of test would be skipped" in capsys.readouterr().err
    assert not (work / "out").exists()


def test_rows_that_the_task_cannot_use_are_skipped_by_every_command(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [json.dumps({"text": "good", "label": "praise"}), json.dumps({"text": None, "label": "praise"})]
    rows += [json.dumps({"text": "bad", "label": "grumble"}), json.dumps({"text": "bad", "label": "blame"})]
    (work / "odd.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    data = ["--set", "data={train: train.tsv, dev: odd.jsonl, faulty: skip}", "--set", "task.labels=[blame, praise]"]
    assert main(["finetune", "task.yaml", "--output", "odd", "--quiet", *data]) == 0
    capsys.readouterr()
    assert main(["evaluate", "odd", "--split", "dev"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["rows"] == 2
    assert "1 row left out, as 'faulty' asks, the first at odd.jsonl:3: label 'grumble'" in captured.err
    assert main(["predict", "odd", "--split", "dev"]) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 3  # prediction needs no label
    assert "1 row skipped" in captured.err


def test_a_step_without_targets_does_not_end_training(work: Path) -> None:
    rows = [{"token": ["good", "film"], "tag": ["B-X", "O"]}, {"token": [], "tag": []}] * 4
    (work / "tags.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    task = ["--set", "task={kind: tag, tokens: token, tags: tag, max_len: 16}", "--set", "train.batch=1"]
    data = ["--set", "data={train: tags.jsonl, dev: tags.jsonl, test: []}"]
    assert main(["finetune", "task.yaml", "--output", "tagged", "--quiet", *task, *data]) == 0
    steps = read_records(work / "tagged" / "trials" / "seed=0", "step")
    assert sum(step["loss"] is None for step in steps) == len(steps) / 2
    assert (work / "tagged" / "report.html").is_file()


def test_labels_with_white_space_are_not_mistakes_in_the_report(work: Path) -> None:
    text = (work / "dev.tsv").read_text(encoding="utf-8").replace("praise", "praise ").replace("blame", "blame ")
    (work / "dev.tsv").write_text(text, encoding="utf-8")
    assert main(["finetune", "task.yaml", "--output", "spaced", "--quiet"]) == 0
    records = read_split_answers(work / "spaced" / "trials" / "seed=0", "dev")
    wrong = [record for record in records if record["right"].strip() != record["label"]]
    assert len(surest_mistakes(records, 100)) == len(wrong) < len(records) / 2

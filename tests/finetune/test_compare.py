"""The command that compares two runs on the same rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.toys import TOYS

from ernie.cli import main
from inference.task_model import TaskModel
from tasks.downstream.resampling import holm

RUNS = ("done", "weak", "done")


@pytest.fixture(scope="module")
def runs(_finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with the runs `done`, `weak` (of two seeds, after one epoch) and `rows` (of other rows).

    `theirs` is the run `done` as a folder of Hugging Face, `number` a model of another kind.
    """
    import os
    import shutil

    folder = tmp_path_factory.mktemp("compare") / "work"
    shutil.copytree(_finished_run, folder)
    before = Path.cwd()
    os.chdir(folder)
    try:
        short = ["--quiet", "--set", "train.epochs=1"]
        assert main(["finetune", "task.yaml", "--output", "weak", "--seeds", "2", *short]) == 0
        assert main(["finetune", "task.yaml", "--output", "rows", "--set", "data.dev=test.tsv", *short]) == 0
        assert main(["convert", "done", "theirs", "--to", "hf"]) == 0
        TaskModel(TaskModel.load("done").ernie, TOYS["regress"].task).save(folder / "number")
    finally:
        os.chdir(before)
    (folder / "bad.tsv").write_text("text\tlabel\ngood\tloud\n")
    return folder


@pytest.fixture
def there(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(runs)
    return runs


def as_json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    assert main(["compare", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_scores_difference_and_rows_are_those_of_the_runs(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, "weak", "done", "--metric", "accuracy", "macro_f1", "--output", "differ.jsonl")
    assert (found["split"], found["rows"], found["seeds"]) == ("dev", 50, 1)
    accuracy = found["metrics"]["accuracy"]
    first = json.loads((there / "weak" / "trials" / "seed=0" / "scores.json").read_text())["scores"]["dev"]["accuracy"]
    second = json.loads((there / "done" / "scores.json").read_text())["best"]["scores"]["dev"]["accuracy"]
    assert accuracy["scores"] == pytest.approx([first, second])
    assert accuracy["difference"] == pytest.approx(second - first)
    assert accuracy["low"] <= accuracy["difference"] <= accuracy["high"] and accuracy["p"] < 0.01
    assert found["metrics"].keys() == {"accuracy", "macro_f1"}
    records = [json.loads(line) for line in (there / "differ.jsonl").read_text().splitlines()]
    assert len(records) == found["differing"] > 0
    for record in records:
        assert record["first"]["label"] != record["second"]["label"]
    right = [sum(record[which]["label"] == record["right"] for record in records) for which in ("first", "second")]
    assert right == [found["mcnemar"]["only_first"], found["mcnemar"]["only_second"]]


def test_the_other_way_round_the_difference_is_the_opposite(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, other = (as_json(capsys, *pair)["metrics"]["accuracy"] for pair in (("weak", "done"), ("done", "weak")))
    assert one["difference"] == -other["difference"] and (one["low"], one["high"]) == (-other["high"], -other["low"])
    assert one["p"] == pytest.approx(other["p"], abs=0.01)


def test_a_run_and_itself_do_not_differ_over_all_its_seeds(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(capsys, "weak", "weak")
    assert found["seeds"] == 2 and found["differing"] == 0 and found["metrics"]["accuracy"]["p"] == 1


def test_text_says_what_is_shown_and_what_is_left_out(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "weak", "done"]) == 0
    told = capsys.readouterr().out
    assert "dev: 50 rows" in told and "shown by these rows" in told and "by McNemar's exact test p " in told
    assert "note: the runs have different numbers of seeds; 1 seed of one left out" in told


def test_test_is_compared_by_the_answers_of_all_seeds_and_answered_anew_without_them(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test = json.loads((there / "done" / "scores.json").read_text())["best"]["scores"]["test"]["accuracy"]
    written = there / "done" / "trials" / "seed=0" / "test.jsonl"
    found = [as_json(capsys, "weak", "done", "--split", "test")]
    written.rename(there / "moved")
    found.append(as_json(capsys, "weak", "done", "--split", "test"))
    (there / "moved").rename(written)
    assert as_json(capsys, "weak", "weak", "--split", "test")["seeds"] == 2
    for each in found:
        assert each["rows"] == 30 and each["metrics"]["accuracy"]["scores"][1] == pytest.approx(test)


def test_models_without_a_run_are_compared_on_files(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (there / "dev.tsv").read_text().splitlines()[1:]
    (there / "named.tsv").write_text("\n".join(["body\ttone", *lines]) + "\n")
    expected = json.loads((there / "done" / "scores.json").read_text())["best"]["scores"]["dev"]["accuracy"]
    columns = ["--set", "task.text=body", "--set", "task.label=tone"]
    found = as_json(capsys, "theirs", "done/model", "weak", "--input", "named.tsv", *columns)
    assert (found["first"], found["rows"], found["split"]) == ("theirs", 50, "named.tsv")
    same = found["compared"]["done/model"]["accuracy"]
    assert same["scores"] == pytest.approx([expected, expected]) and same["difference"] == 0 and same["p_holm"] == 1
    alone = as_json(capsys, "theirs", "done", "--input", "dev.tsv")
    assert alone["metrics"]["accuracy"]["scores"] == pytest.approx([expected, expected])
    assert main(["tradeoff", "theirs", "done", "--input", "named.tsv", *columns]) == 0
    table = [line.split("|") for line in capsys.readouterr().out.splitlines() if line.startswith("| theirs")]
    assert float(table[0][3]) == pytest.approx(expected, abs=0.03)


def test_several_runs_are_compared_with_the_first_and_p_is_corrected(
    there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "done", "weak", "done", "--metric", "accuracy", "macro_f1", "--output", "all.jsonl"]) == 0
    told = capsys.readouterr().out
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in told.splitlines() if line.startswith("|")]
    assert [row[:2] for row in table[2:]] == [[name, run] for name in ("accuracy", "macro_f1") for run in RUNS]
    pairs = [as_json(capsys, "done", other)["metrics"]["accuracy"] for other in ("weak", "done")]
    assert [row[6] for row in table[3:5]] == [f"{each['p']:.4f}" for each in pairs]
    assert float(table[3][7]) == pytest.approx(2 * pairs[0]["p"], abs=2e-4) and table[4][7] == "1.0000"
    assert [row[8] for row in table[3:5]] == ["shown", "not shown"]
    assert "Differences are from done." in told
    records = [json.loads(line) for line in (there / "all.jsonl").read_text().splitlines()]
    assert records and all(each["answers"]["done"] != each["answers"]["weak"] for each in records)


def test_holm_multiplies_each_p_by_the_number_of_those_that_are_not_smaller() -> None:
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([0.7, 0.6]) == [1.0, 1.0]
    assert holm([0.02]) == [0.02]


def test_the_report_tells_how_sure_scores_and_answers_are(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--set", "data.dev=train.tsv", "--set", "task.class_weights=balanced", "--set", "train.epochs=1"]
    options += ["--set", "calibrate=[temperature,threshold]", "--quiet"]
    assert main(["finetune", "task.yaml", "--output", "run", *options]) == 0
    page = (work / "run" / "report.html").read_text(encoding="utf-8")
    for shown in ("How sure the scores are", "Probabilities and what came true", "Calibration", "class weights: blame"):
        assert shown in page
    assert (work / "run" / "report" / "reliability.png").is_file()
    kept = json.loads((work / "run" / "scores.json").read_text())["kept"]["calibration"]
    assert kept["threshold"] != 0.5 and f"calibration error is {kept['after']['dev']['ece']:.4f}:" in page
    capsys.readouterr()
    assert main(["evaluate", "run", "--intervals", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    low, high = found["intervals"]["accuracy"]
    assert low < found["accuracy"] < high
    assert f"{low:.4f}" in page and f"{high:.4f}" in page
    card = (work / "run" / "README.md").read_text(encoding="utf-8")
    shown = json.loads((work / "run" / "scores.json").read_text())["intervals"]
    assert shown["dev"]["accuracy"] == pytest.approx({"score": found["accuracy"], "low": low, "high": high})
    assert main(["evaluate", "run", "--split", "test", "--intervals", "--quiet"]) == 0
    low, high = json.loads(capsys.readouterr().out)["intervals"]["accuracy"]
    assert (shown["test"]["accuracy"]["low"], shown["test"]["accuracy"]["high"]) == (low, high)
    assert f"| {low:.4f} | {high:.4f} |" in card and "95 % intervals by 1,000 draws" in card


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["done", "rows"], "dev: the rows of done and of rows are not the same"),
        (["done", "weak", "--split", "train"], "--split: done was trained on train; compare on dev or test"),
        (
            ["done", "weak", "--split", "tets"],
            "--split: done: the run's data has no split 'tets'. Did you mean",
        ),
        (["done", "weak", "--metric", "bleu"], "--metric: classify has no metric 'bleu'. Known: "),
        (["done", "done/model"], "fine-tuning run; --input gives a model without a run its rows\n"),
        (["done"], "RUN: expected two folders or more, found done alone"),
        (["done", "weak", "--set", "task.text=body"], "--set: changes how the rows of --input are read and answered"),
        (["done", "number", "--input", "dev.tsv"], "done is of the kind classify, number of the kind regress"),
        (["done", "encoder", "--input", "dev.tsv"], "encoder: holds no fine-tuned model"),
        (["done", "weak", "--input", "bad.tsv"], "bad.tsv:2: label 'loud' is not one of blame, praise"),
        (["done", "encoder"], "encoder: is not the folder of a finished fine-tuning run"),
        (["done", "weak", "--output", "no/where"], "--output: no/where cannot be written: there is no folder no"),
    ],
)
def test_a_mistake_is_an_error(there: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert main(["compare", *words]) == 2
    assert message in capsys.readouterr().err

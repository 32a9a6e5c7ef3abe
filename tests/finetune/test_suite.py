"""A suite runs the tasks whose data is present, gives the reason for each missing one, and writes one table."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import paddle
import pytest
from support.helpers import ROOT, vocabulary

from ernie.cli import main
from ernie.errors import UserError
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from finetune.report.suite_table import as_dict, markdown
from finetune.suite.run import Outcome, Suite

TASK = """
include: base.yaml
task: {{kind: classify, labels: ["no", "yes"], metrics: [accuracy, f1]}}
local: {{train: {name}/train.tsv, dev: {name}/dev.tsv, test: {name}/test.tsv}}
published: {{A paper: {{dev: {{accuracy: 80.0, f1: {f1}}}, test: {{accuracy: 70.0}}}}}}
"""
ROWS = "text\tlabel\ngood film\tyes\nbad film\tno\n" * 1


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an encoder, a suite of three tasks, and data for two of them, one invalid."""
    monkeypatch.chdir(tmp_path)
    paddle.seed(0)
    tokenizer = vocabulary("good bad film")
    shape = {"hidden_size": 16, "layers": 1, "heads": 2, "intermediate_size": 32, "max_positions": 128}
    model = ErnieModel(EncoderConfig(vocab_size=tokenizer.vocab_size, **shape))
    model.tokenizer = tokenizer
    model.save_pretrained(tmp_path / "encoder")
    (tmp_path / "suite").mkdir()
    (tmp_path / "suite" / "base.yaml").write_text("train: {epochs: 1}\n", encoding="utf-8")
    for name in ("away", "broken", "reviews"):
        (tmp_path / "suite" / f"{name}.yaml").write_text(TASK.format(name=name, f1=90.0), encoding="utf-8")
    for name in ("broken", "reviews"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for split in ("train", "dev"):
            (tmp_path / "data" / name / f"{split}.tsv").write_text(ROWS, encoding="utf-8")
    (tmp_path / "data" / "broken" / "train.tsv").write_text(ROWS + "fine film\tmaybe\n", encoding="utf-8")
    return tmp_path


def benchmark(*more: str) -> int:
    return main(["benchmark", "suite", "--model", "encoder", "--output", "out", "--data", "data", "--quiet", *more])


def test_available_tasks_are_scored_and_the_others_listed_with_the_reason(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert benchmark("--seeds", "2") == 1  # one task failed
    page = capsys.readouterr().out
    assert page == (folder / "out" / "results.md").read_text(encoding="utf-8")
    assert "Median of 2 seeds" in page
    assert "- away: there is no data/away/train.tsv" in page
    assert "- broken: failed: data/broken/train.tsv:4: label 'maybe' is not one of no, yes" in page
    assert "- reviews: left out test: there is no data/reviews/test.tsv" in page
    assert "2 of 3 tasks have no scores" in page
    results = json.loads((folder / "out" / "results.json").read_text(encoding="utf-8"))
    assert results["tasks"]["reviews"]["seeds"] == 2
    assert results["tasks"]["reviews"]["scores"]["dev"].keys() == {"accuracy", "f1"}
    assert results["average"] == {}
    assert set(results["missing"]) == {"away"}
    assert set(results["failed"]) == {"broken"}


def test_a_finished_task_is_not_run_again(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert benchmark("--tasks", "reviews") == 0
    scores = folder / "out" / "reviews" / "scores.json"
    before = scores.stat().st_mtime_ns
    assert benchmark("--tasks", "reviews") == 0
    assert scores.stat().st_mtime_ns == before
    assert benchmark("--tasks", "reviews", "--seeds", "2") == 0  # only the second seed is missing
    assert len(json.loads(scores.read_text(encoding="utf-8"))["trials"]) == 2
    capfd.readouterr()
    assert benchmark("--tasks", "reviews", "--seeds", "2", "--set", "train.epochs=2") == 1
    assert "train.epochs: was 1, is 2" in capfd.readouterr().out


def test_a_finished_task_whose_rows_changed_is_not_reused(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert benchmark("--tasks", "reviews") == 0
    with (folder / "data" / "reviews" / "dev.tsv").open("a", encoding="utf-8") as file:
        file.write(last_dev_row(folder))
    capfd.readouterr()
    assert benchmark("--tasks", "reviews") == 1
    assert "trained on other inputs under the same name: data.dev changed since" in capfd.readouterr().out


def last_dev_row(folder: Path) -> str:
    """The last row of the dev split."""
    return (folder / "data" / "reviews" / "dev.tsv").read_text(encoding="utf-8").splitlines()[-1] + "\n"


def test_scores_of_a_finished_task_stay_in_the_table_when_it_is_not_selected(folder: Path) -> None:
    assert benchmark("--tasks", "reviews") == 0
    assert benchmark("--tasks", "broken") == 1
    results = json.loads((folder / "out" / "results.json").read_text(encoding="utf-8"))
    assert set(results["tasks"]) == {"reviews"}
    assert set(results["failed"]) == {"broken"}


def test_results_are_not_replaced_by_another_models_or_by_none(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert benchmark("--tasks", "reviews") == 0
    results = (folder / "out" / "results.json").read_text(encoding="utf-8")
    shutil.copytree(folder / "encoder", folder / "another")
    assert benchmark("--tasks", "reviews", "--model", "another") == 2
    assert "out: holds results of the suite suite with the model encoder. Choose another" in capsys.readouterr().err
    assert benchmark("--tasks", "reviews", "--set", "train.epochs=2") == 1  # with another configuration
    assert (folder / "out" / "results.json").read_text(encoding="utf-8") == results


def test_a_suite_without_any_data_is_an_error_that_lists_the_reasons(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert benchmark("--tasks", "away") == 2
    captured = capsys.readouterr()
    assert "there is no data/away/train.tsv" in captured.out
    assert "no task of the suite has its data on this machine" in captured.err


def test_the_current_folder_as_a_suite_has_its_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = Suite.read("suite").name
    monkeypatch.chdir(folder / "suite")
    assert Suite.read(".").name == named == "suite"


def test_an_unknown_suite_or_task_names_the_nearest(folder: Path) -> None:
    with pytest.raises(UserError, match="Did you mean 'glue'"):
        Suite.read("gleu")
    with pytest.raises(UserError, match=r"glue has no task 'sst'.*sst2"):
        Suite.read("glue", ["sst"])


def test_a_data_folder_with_a_suites_name_does_not_hide_the_suite(folder: Path) -> None:
    (folder / "glue" / "CoLA").mkdir(parents=True)
    assert len(Suite.read("glue").configs) == 9


def scored_outcome(name: str, suite: Suite, **scores: float) -> Outcome:
    """An outcome with these dev scores, from 0 to 1."""
    spread = {measure: {"median": x, "lowest": x, "highest": x} for measure, x in scores.items()}
    return Outcome(name, replace(suite.configs[name], seeds=1), {"scores": {"dev": spread}})


def test_the_average_is_over_task_means_and_only_where_every_task_has_a_score(folder: Path) -> None:
    suite = Suite.read("suite")
    all_three = [scored_outcome("away", suite, accuracy=0.5, f1=0.7)]
    all_three += [scored_outcome(name, suite, accuracy=0.5, f1=0.5) for name in ("broken", "reviews")]
    page = markdown("suite", "ours", all_three)
    assert "| average of 3 tasks | dev |  | 53.3 | 85.0 |" in page
    assert "average of 3 tasks | test" not in page  # the paper reports only one of the two measures on test
    assert as_dict("suite", "ours", all_three)["average"] == {"dev": pytest.approx(160 / 3)}
    two = [*all_three[:2], Outcome("reviews", suite.configs["reviews"])]
    assert "| average of 3 tasks | dev |  |  | 85.0 |" in markdown("suite", "ours", two)


def test_the_averages_of_published_glue_scores_match_the_paper() -> None:
    suite = Suite.read("glue")
    outcomes = [scored_outcome(name, suite) for name in suite.configs]
    (line,) = [line for line in markdown("glue", "ours", outcomes).splitlines() if line.startswith("| average")]
    assert line == "| average of 9 tasks | test |  |  | 78.3 | 80.6 | 80.5 | 83.6 |"


def test_the_wheel_includes_every_folder_of_configurations() -> None:
    listed = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    for folder in {file.parent.relative_to(ROOT).as_posix() for file in (ROOT / "configs").rglob("*.yaml")}:
        assert f"share/ernie-continual/{folder} = {folder}/*.yaml" in listed

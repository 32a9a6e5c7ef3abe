"""A suite runs what is here, says why the rest is not, and makes one table of it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import paddle
import pytest
from helpers import ROOT, vocabulary

from ernie.cli import main
from ernie.errors import UserError
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from finetune.suite import Outcome, Suite
from finetune.table import as_dict, markdown

TASK = """
include: base.yaml
task: {{kind: classify, labels: ["no", "yes"], metrics: [accuracy, f1]}}
local: {{train: {name}/train.tsv, dev: {name}/dev.tsv, test: {name}/test.tsv}}
published: {{A paper: {{dev: {{accuracy: 80.0, f1: {f1}}}, test: {{accuracy: 70.0}}}}}}
"""
ROWS = "text\tlabel\ngood film\tyes\nbad film\tno\n" * 1


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an encoder, a suite of three tasks, and data for two, of which one is damaged."""
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


def test_what_is_here_is_scored_and_what_is_not_is_listed_with_the_reason(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert benchmark("--seeds", "2") == 1  # one task failed
    page = capsys.readouterr().out
    assert page == (here / "out" / "results.md").read_text(encoding="utf-8")
    assert "Median of 2 seeds" in page
    assert "- away: there is no data/away/train.tsv" in page
    assert "- broken: failed: data/broken/train.tsv:4: label 'maybe' is not one of no, yes" in page
    assert "- reviews: left out test: there is no data/reviews/test.tsv" in page
    assert "2 of 3 tasks have no scores" in page
    results = json.loads((here / "out" / "results.json").read_text(encoding="utf-8"))
    assert results["tasks"]["reviews"]["seeds"] == 2
    assert results["tasks"]["reviews"]["scores"]["dev"].keys() == {"accuracy", "f1"}
    assert results["average"] == {}
    assert set(results["missing"]) == {"away"}
    assert set(results["failed"]) == {"broken"}


def test_a_finished_task_is_not_run_again(here: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert benchmark("--tasks", "reviews") == 0
    scores = here / "out" / "reviews" / "scores.json"
    before = scores.stat().st_mtime_ns
    assert benchmark("--tasks", "reviews") == 0
    assert scores.stat().st_mtime_ns == before
    assert benchmark("--tasks", "reviews", "--seeds", "2") == 0  # the second seed is what is missing
    assert len(json.loads(scores.read_text(encoding="utf-8"))["trials"]) == 2
    capfd.readouterr()
    assert benchmark("--tasks", "reviews", "--seeds", "2", "--set", "train.epochs=2") == 1
    assert "train.epochs: was 1, is 2" in capfd.readouterr().out


def test_a_finished_task_whose_rows_have_changed_since_is_not_taken_for_done(
    here: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert benchmark("--tasks", "reviews") == 0
    with (here / "data" / "reviews" / "dev.tsv").open("a", encoding="utf-8") as file:
        file.write(file_row(here))
    capfd.readouterr()
    assert benchmark("--tasks", "reviews") == 1
    assert "trained on other inputs under the same name: data.dev changed since" in capfd.readouterr().out


def file_row(here: Path) -> str:
    """One more row of the dev split: its last one again."""
    return (here / "data" / "reviews" / "dev.tsv").read_text(encoding="utf-8").splitlines()[-1] + "\n"


def test_scores_of_a_finished_task_that_is_not_asked_for_stay_in_the_table(here: Path) -> None:
    assert benchmark("--tasks", "reviews") == 0
    assert benchmark("--tasks", "broken") == 1
    results = json.loads((here / "out" / "results.json").read_text(encoding="utf-8"))
    assert set(results["tasks"]) == {"reviews"}
    assert set(results["failed"]) == {"broken"}


def test_results_are_not_replaced_by_those_of_another_model_or_by_none(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert benchmark("--tasks", "reviews") == 0
    results = (here / "out" / "results.json").read_text(encoding="utf-8")
    shutil.copytree(here / "encoder", here / "another")
    assert benchmark("--tasks", "reviews", "--model", "another") == 2
    assert "out: holds results of the suite suite with the model encoder. Choose another" in capsys.readouterr().err
    assert benchmark("--tasks", "reviews", "--set", "train.epochs=2") == 1  # of another configuration
    assert (here / "out" / "results.json").read_text(encoding="utf-8") == results


def test_a_suite_without_any_data_is_an_error_that_lists_the_reasons(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert benchmark("--tasks", "away") == 2
    said = capsys.readouterr()
    assert "there is no data/away/train.tsv" in said.out
    assert "no task of the suite has its data on this machine" in said.err


def test_an_unknown_suite_or_task_names_the_nearest(here: Path) -> None:
    with pytest.raises(UserError, match="Did you mean 'glue'"):
        Suite.read("gleu")
    with pytest.raises(UserError, match=r"glue has no task 'sst'.*sst2"):
        Suite.read("glue", ["sst"])


def test_a_folder_of_data_that_is_called_like_a_suite_does_not_hide_it(here: Path) -> None:
    (here / "glue" / "CoLA").mkdir(parents=True)
    assert len(Suite.read("glue").configs) == 9


def scored(name: str, suite: Suite, **figures: float) -> Outcome:
    """An outcome on dev with these figures, from 0 to 1."""
    spread = {measure: {"median": x, "lowest": x, "highest": x} for measure, x in figures.items()}
    return Outcome(name, replace(suite.configs[name], seeds=1), {"scores": {"dev": spread}})


def test_the_average_is_over_each_tasks_own_mean_and_only_where_all_tasks_are_there(here: Path) -> None:
    suite = Suite.read("suite")
    all_three = [scored("away", suite, accuracy=0.5, f1=0.7)]
    all_three += [scored(name, suite, accuracy=0.5, f1=0.5) for name in ("broken", "reviews")]
    page = markdown("suite", "ours", all_three)
    assert "| average of 3 tasks | dev |  | 53.3 | 85.0 |" in page
    assert "average of 3 tasks | test" not in page  # the paper has only one of the two measures there
    assert as_dict("suite", "ours", all_three)["average"] == {"dev": pytest.approx(160 / 3)}
    two = [*all_three[:2], Outcome("reviews", suite.configs["reviews"])]
    assert "| average of 3 tasks | dev |  |  | 85.0 |" in markdown("suite", "ours", two)


def test_the_averages_of_published_figures_on_glue_are_those_of_the_paper() -> None:
    suite = Suite.read("glue")
    outcomes = [scored(name, suite) for name in suite.configs]
    (line,) = [line for line in markdown("glue", "ours", outcomes).splitlines() if line.startswith("| average")]
    assert line == "| average of 9 tasks | test |  |  | 78.3 | 80.6 | 80.5 | 83.6 |"


def test_the_wheel_takes_along_every_folder_of_configurations() -> None:
    listed = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    for folder in {file.parent.relative_to(ROOT).as_posix() for file in (ROOT / "configs").rglob("*.yaml")}:
        assert f"share/ernie-continual/{folder} = {folder}/*.yaml" in listed

"""`ernie tune` searches settings, prunes, resumes, and leaves the run of the best ones."""

from __future__ import annotations

import json
import os
import shutil
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import finetune.commands.tune
from ernie.cli import main
from ernie.errors import UserError
from ernie.train.checkpoint import Checkpoints
from finetune.config import FinetuneConfig, build_tuned
from finetune.search_space import SearchRecord, SearchTrial, TuneConfig
from inference.task_model import TaskModel
from tasks.downstream.classify import Classify

SEARCH = """\
include: task.yaml
train: {epochs: 2, batch: 20, lr: {peak: 1e-2}}
seed: 1
tune:
  trials: 7
  search:
    train.lr.peak: {low: 1e-6, high: 2e-2, log: true}
    task.windows: [null, {stride: 2}]
"""


class Killed(BaseException):
    """Simulates the end of the process."""


def tune(output: str, *more: str) -> int:
    return main(["tune", "tune.yaml", "--output", output, "--quiet", *more])


def trials(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "search.jsonl").read_text(encoding="utf-8").splitlines()
    return [{name: value for name, value in json.loads(line).items() if name != "seconds"} for line in lines]


@pytest.fixture(scope="module")
def searched(_finished_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with `tune.yaml` and `whole`, a finished search of it."""
    folder = tmp_path_factory.mktemp("tune") / "work"
    shutil.copytree(_finished_run, folder)
    (folder / "tune.yaml").write_text(SEARCH, encoding="utf-8")
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert tune("whole") == 0
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def place(searched: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(searched, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def test_the_best_settings_are_those_of_the_folders_run(searched: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(searched)
    found = trials(searched / "whole")
    assert [trial["trial"] for trial in found] == [1, 2, 3, 4, 5, 6, 7]
    assert (found[0]["train.lr.peak"], found[0]["task.windows"]) == (0.01, None)  # the configuration's own
    assert {trial["outcome"] for trial in found} == {"done", "pruned"}
    best = max((trial for trial in found if trial["outcome"] == "done"), key=lambda trial: trial["accuracy"])
    scores = json.loads((searched / "whole" / "scores.json").read_text())
    assert scores["scores"]["dev"]["accuracy"]["median"] == best["accuracy"] > 0.5
    config = (searched / "whole" / "config.yaml").read_text()
    assert f"peak: {best['train.lr.peak']}" in config
    assert f"peak: {best['train.lr.peak']}" in (searched / "whole" / "best.yaml").read_text()
    assert len([*TaskModel.load("whole").predict(["a good film"])]) == 1
    assert main(["evaluate", "whole", "--split", "test"]) == 0
    assert [*(searched / "whole" / "searched").glob("*/model")] == []
    card = (searched / "whole" / "README.md").read_text(encoding="utf-8")
    assert "The settings are the best of 7 trials of `ernie tune` by accuracy on dev" in card
    page = (searched / "whole" / "report.html").read_text(encoding="utf-8")
    assert "Search" in page and "pruned" in page and "train.lr.peak" in page
    assert (searched / "whole" / "report" / "search.png").is_file()


def test_a_search_that_was_killed_goes_on_as_it_would_have(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Checkpoints.save
    saved: list[int] = []

    def save(self: Checkpoints, step: int, *args: Any) -> Path:
        path = write(self, step, *args)
        saved.append(step)
        if len(saved) == 20:  # in the second trial, which goes on from there
            raise Killed
        return path

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", save)
        with pytest.raises(Killed):
            tune("cut", "--trials", "3", "--set", "save_minutes=1e-9")
    assert not (place / "cut" / "model").exists() and saved[-1] < 16
    assert tune("cut", "--trials", "3") == 0
    assert tune("cut", "--trials", "7") == 0  # more trials later
    assert trials(place / "cut") == trials(place / "whole")
    whole, cut = (load_file(place / name / "model" / "head.safetensors") for name in ("whole", "cut"))
    for name, values in whole.items():
        np.testing.assert_array_equal(cut[name], values, err_msg=name)


def test_the_score_of_a_trial_is_the_mean_over_its_seeds(place: Path) -> None:
    assert tune("mean", "--trials", "2", "--seeds", "2", "--set", "train.epochs=1", "--set", "keep=ensemble") == 0
    assert len([*(place / "mean" / "model").glob("*/task.json")]) == 2
    assert len([*TaskModel.load("mean").predict(["a good film"])]) == 1
    for trial in trials(place / "mean"):
        files = sorted((place / "mean" / "searched" / str(trial["trial"])).glob("trials/*/scores.json"))
        scores = [json.loads(file.read_text())["scores"]["dev"]["accuracy"] for file in files]
        assert len(scores) == 2 and trial["accuracy"] == statistics.mean(scores)


def test_settings_that_cannot_be_trained_are_noted_and_left_out(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search = "include: task.yaml\ntrain: {epochs: 1}\ntune: {trials: 4, search: {task.max_len: [16, 64]}}\n"
    (place / "lengths.yaml").write_text(search, encoding="utf-8")
    assert main(["tune", "lengths.yaml", "--output", "some"]) == 0
    error = capsys.readouterr().err
    assert "task.max_len: 64 tokens, but encoder has 32 positions" in error
    assert "its settings were tried before, and have the same score" in error
    found = trials(place / "some")
    assert [(trial["task.max_len"], trial["outcome"]) for trial in found[:1]] == [(16, "done")]
    assert {trial["outcome"] for trial in found if trial["task.max_len"] == 64} == {"failed"}


def test_a_search_goes_on_with_the_same_rows_only(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = (place / "train.tsv").read_text(encoding="utf-8")
    (place / "train.tsv").write_text(rows + "a good film\tpraise\n", encoding="utf-8")
    assert tune("whole", "--trials", "8", "--set", "train.epochs=2") == 2
    assert "whole: holds a search on other rows: those of data have changed." in capsys.readouterr().err
    (place / "train.tsv").write_text(rows, encoding="utf-8")
    assert tune("whole", "--trials", "8") == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["tune", "task.yaml"], "task.yaml: has no block `tune`, which says what is searched"),
        (["finetune", "tune.yaml"], "tune: settings are searched by `ernie tune`"),
        (["tune", "tune.yaml", "--set", "data.dev=[]"], "data.dev: fine-tuning needs a labeled dev split"),
        (["tune", "tune.yaml", "--set", "grid.batch=[8, 16]"], "tune: searches settings, as grid does"),
        (["tune", "tune.yaml", "--trials", "0"], "tune: trials: expected at least 1, found 0"),
        (["check", "tune.yaml", "--set", "tune.search={train.lr.paek: [1, 2]}"], "unknown key. Did you mean 'peak'?"),
        (
            ["check", "tune.yaml", "--set", "tune.search={train.ema: [0.5, 2]}"],
            "--set tune.search:1: tune: search: train: ema: expected a share from 0",
        ),
        (["check", "tune.yaml", "--set", "tune.search={train.batch: {low: 0, high: 9}}"], "batch: expected at least 1"),
        (["check", "tune.yaml", "--set", "tune.search={seed: [1, 2]}"], "seed is the same for all trials"),
        (["tune", "tune.yaml", "--output", "done"], "done: is not empty and holds no search"),
        (["tune", "tune.yaml", "--output", "whole", "--set", "train.batch=8"], "train.batch: was 20, is 8"),
    ],
)
def test_what_cannot_be_searched_is_an_error_before_training(
    place: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    output = [] if words[0] == "check" or "--output" in words else ["--output", "new"]
    assert main([*words, *output]) == 2
    assert message in capsys.readouterr().err
    assert not [*place.glob("new/**/metrics.jsonl")]


def test_check_names_what_is_searched(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "tune.yaml"]) == 0
    assert "ok: a search of train.lr.peak, task.windows in 7 trials" in capsys.readouterr().out


def test_without_optuna_the_command_says_how_to_install_it(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(finetune.commands.tune, "find_spec", lambda name: None)
    assert tune("new") == 2
    assert "ernie tune needs Optuna: pip install 'ernie-continual[tune]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "search: expected keys of the configuration"),
        ({"train.batch": []}, r"search: train\.batch: expected at least two values, all of them different, found \[\]"),
        ({"train.batch": [8, 8]}, "all of them different"),
        ({"train.batch": 8}, "expected a list of values, or a range"),
        ({"train.lr.peak": {"low": 1e-3, "high": 1e-4}}, "low: expected less than high, found 0.001 and 0.0001"),
        ({"train.lr.peak": {"low": 1e-3}}, "high: this key is required"),
        ({"train.lr.peak": {"low": 0, "high": 1, "log": True}}, "low: a range with log is above 0"),
        ({"train.lr.peak": {"low": 0, "high": 1, "lgo": True}}, "a range has no key 'lgo'. Did you mean 'low'?"),
        ({"train.lr.peak": {"low": "0", "high": 1}}, "low: expected a number, found 0"),
        ({"train.lr.peak": {"low": 1, "high": 2, "step": 3}}, "step: expected a part of the range"),
        ({"train.lr": [1, 2], "train.lr.peak": [1, 2]}, "train.lr is searched as a whole"),
    ],
)
def test_ranges_and_values_that_are_none_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        TuneConfig(search=given)


def test_values_are_set_below_blocks_that_are_empty_by_default() -> None:
    config = FinetuneConfig(Classify(labels=("a", "b")), tune=TuneConfig(search={"train.adapt.rank": [2, 4]}))
    built = build_tuned(config, {"train.adapt.rank": 4, "task.max_len": 64, "model": "other"})
    assert built.train.adapt is not None
    assert (built.train.adapt.rank, built.task.max_len, built.model, built.tune) == (4, 64, "other", None)


def test_trials_are_ranked_by_their_scores_with_those_without_any_last() -> None:
    made = [SearchTrial(n, {}, "done", score, 1.0) for n, score in ((1, 0.5), (2, None), (3, 0.2), (4, 0.9))]
    for metric, order in (("accuracy", [4, 1, 3, 2]), ("mean_squared_error", [3, 1, 4, 2])):
        record = SearchRecord(metric, "dev", tuple(made), made[0], {})
        assert [trial.number for trial in record.ranked()] == order

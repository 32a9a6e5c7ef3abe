"""Fine-tuning from Python: the same runs as by the command."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ernie.cli import main
from ernie.config import read
from ernie.errors import UserError
from finetune import fine_tune


def table(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8", newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.fixture
def config(work: Path) -> dict[str, Any]:
    """The configuration of the run in `work`, with rows in place of its files."""
    tree = read("task.yaml").plain()
    return {**tree, "data": {split: table(work / file) for split, file in tree["data"].items()}}


def test_rows_in_memory_give_the_scores_of_the_same_rows_in_files(work: Path, config: dict[str, Any]) -> None:
    result = fine_tune({**config, "model": Path(config["model"])}, "from-rows")
    done = json.loads((work / "done" / "scores.json").read_text(encoding="utf-8"))
    assert result.best.scores == done["best"]["scores"]
    assert fine_tune("task.yaml", "from-file").best.scores == result.best.scores


def test_all_commands_work_on_its_run_and_it_trains_nothing_twice(
    work: Path, config: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    before = fine_tune(config, "run")
    assert capsys.readouterr() == ("", "")
    assert main(["evaluate", "run", "--split", "dev", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] == pytest.approx(before.best.scores["dev"]["accuracy"])
    assert fine_tune(config, Path("run"), quiet=False).best == before.best
    assert "was done before" in capsys.readouterr().err


def test_other_rows_are_refused_and_those_of_the_run_stay(work: Path, config: dict[str, Any]) -> None:
    fine_tune(config, "run")
    kept = (work / "run" / "rows" / "train.jsonl").read_bytes()
    fewer = {**config, "data": {**config["data"], "train": config["data"]["train"][:-1]}}
    with pytest.raises(UserError, match=r"rows/train.jsonl: the run in run was trained on other rows"):
        fine_tune(fewer, "run")
    assert (work / "run" / "rows" / "train.jsonl").read_bytes() == kept


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"text": "fine", "label": "praise"}, "dull"], "data.train: row 1, counted from 0, is a str"),
        ([{"text": np.zeros(2), "label": "praise"}], "data.train: row 0, counted from 0, cannot be written as JSON"),
        ([], "data.train: "),
    ],
)
def test_rows_that_cannot_be_used_are_named(work: Path, config: dict[str, Any], rows: list[Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        fine_tune({**config, "data": {**config["data"], "train": rows}}, "run")


def test_mistakes_are_those_of_the_command(work: Path, config: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=r"train.epoch: unknown key. Did you mean 'epochs'\?"):
        fine_tune({**config, "train": {"epoch": 3}}, "run")
    with pytest.raises(UserError, match="is not empty and holds no fine-tuning run"):
        fine_tune(config, "encoder")
    assert not (work / "encoder" / "rows").exists()
    with pytest.raises(UserError, match="parallel: data 2"):
        fine_tune({**config, "parallel": {"data": 2}}, "run")

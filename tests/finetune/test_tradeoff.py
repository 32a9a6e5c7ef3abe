"""What models cost and what they give, side by side."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.helpers import perturbed
from support.toys import TOYS, tiny_encoder

from ernie.cli import main
from ernie.errors import UserError
from ernie.kernels.precision import precision
from finetune.report.tradeoff import PRECISIONS, OperatingPoint, Tradeoff
from inference.task_model import TaskModel


def precisions() -> list[str]:
    """Those that this machine has."""
    found = []
    for name in PRECISIONS:
        try:
            with precision(name):
                found.append(str(name))
        except UserError:
            pass
    return found


def point(name: str, score: float, milliseconds: float) -> OperatingPoint:
    return OperatingPoint(name, "fp32", 10, 0.1, score, milliseconds, 100.0)


def test_the_best_are_those_that_no_other_outdoes() -> None:
    slow, fast, worse, tie = (
        point("slow", 0.9, 9.0),
        point("fast", 0.8, 1.0),
        point("worse", 0.8, 2.0),
        point("tie", 0.9, 9.5),
    )
    found = Tradeoff("accuracy", 5, (slow, worse, fast, tie), {})
    assert found.best == [fast, slow]
    assert [row[0] for row in found.table() if row[-1] == "best"] == ["slow", "fast"]
    assert replace(found, metric="mean_squared_error").best == [fast]
    error = replace(found, metric="mean_squared_error", points=(point("low", 0.1, 3.0), fast, worse))
    assert [each.model for each in error.best] == ["fast", "low"]


def test_each_model_is_scored_as_evaluate_does_in_each_precision_of_the_machine(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = TaskModel.load("done", precision="fp32")
    perturbed(other.head)
    other.save(work / "other")
    assert main(["evaluate", "done", "--quiet", "--precision", "fp32"]) == 0
    expected = json.loads(capsys.readouterr().out)["accuracy"]
    assert main(["tradeoff", "done", "other", "--output", "sizes"]) == 0
    head, _, *lines = capsys.readouterr().out.splitlines()
    assert head == "| model | precision | accuracy | weights | MB | ms a row | rows a second |  |"
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    assert [row[:2] for row in table] == [[name, each] for name in ("done", "other") for each in precisions()]
    assert float(table[0][2]) == pytest.approx(expected, abs=1e-4)
    assert all(float(row[5]) > 0 for row in table)
    written = json.loads((work / "sizes" / "tradeoff.json").read_text(encoding="utf-8"))
    assert [*written["lacking"]] == [name for name in PRECISIONS if name not in precisions()]
    for name, reason in written["lacking"].items():
        assert f"{name} is not measured: {reason}." in lines[-1]
        assert reason.startswith("this machine computes in ")
    weights = sum(each.size for each in TaskModel.load("done").parameters())
    assert {entry["weights"] for entry in written["points"]} == {weights}
    page = (work / "sizes" / "report.html").read_text(encoding="utf-8")
    assert page.count("data:image/png") == 1 and "● done" in page
    assert main(["tradeoff", "done", "--output", "sizes"]) == 0  # its own folder is written again


def test_what_cannot_be_compared_is_an_error(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    TaskModel(tiny_encoder(), TOYS["regress"].task).save(work / "number")
    TaskModel(tiny_encoder(), TOYS["classify"].task).save(work / "colors")
    for words, message in {
        ("done", "done"): "RUN: the same folder is given twice",
        ("done", "gone"): "gone: there is no such folder",
        ("encoder", "done"): "encoder: is not the folder of a finished fine-tuning run",
        ("done/model", "done"): "fine-tuning run; --input gives a model without a run its rows",
        ("done", "--set", "task.threshold=0.4"): "--set: task.threshold: only columns can be changed here",
        ("done", "number"): "number: is of the kind regress; expected the kind classify",
        ("done", "colors"): "colors: has other labels: it lacks blame, praise and also has blue, green",
        ("done", "--output", "done"): "done: holds something else; choose another --output",
        ("done", "--split", "other"): "--split: the run's data has no split 'other'",
    }.items():
        assert main(["tradeoff", *words]) == 2
        assert re.search(message, capsys.readouterr().err), words

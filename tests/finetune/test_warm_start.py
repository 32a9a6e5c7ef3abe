"""A run that continues another one: it starts with that run's encoder and, with `head: keep`, with its head."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.finished import write_rows

from ernie.cli import main
from inference.task_model import TaskModel

UNCHANGED = ("--set", "train={epochs: 1, lr: {peak: 1e-12}}")


def continued(*more: str, model: str = "done", output: str = "more") -> int:
    return main(["finetune", "task.yaml", "--model", model, "--set", "head=keep", *more, "--output", output])


def scores(run: Path) -> dict[str, Any]:
    return json.loads((run / "scores.json").read_text(encoding="utf-8"))["best"]["scores"]


def test_it_starts_where_the_run_before_ended(work: Path) -> None:
    assert continued(*UNCHANGED) == 0
    assert scores(work / "more") == scores(work / "done")
    before, after = (load_file(work / run / "model" / "head.safetensors") for run in ("done", "more"))
    for name, values in before.items():
        np.testing.assert_allclose(after[name], values, atol=1e-9)
    assert "fine-tuned from `done` and its head with" in (work / "more" / "README.md").read_text(encoding="utf-8")


def test_without_it_the_head_is_new_which_is_noted(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["finetune", "task.yaml", "--model", "done", *UNCHANGED, "--output", "more"]) == 0
    assert (
        "note: done is a run of the same kind, and a new head replaces its own; head: keep" in capsys.readouterr().err
    )
    before, after = (load_file(work / run / "model" / "head.safetensors") for run in ("done", "more"))
    assert any(not np.allclose(after[name], values) for name, values in before.items())


def test_labels_and_their_order_are_those_of_the_head(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("the film was good", "praise"), ("it was bad", "blame")]
    write_rows(work / "train.tsv", rows[:1] * 20)
    assert continued(*UNCHANGED) == 0
    assert TaskModel.load(work / "more").task.labels == ("blame", "praise")
    write_rows(work / "train.tsv", [*rows, ("it was so", "shrug")])
    assert continued(output="other") == 2
    assert "train.tsv:4: label 'shrug'" in capsys.readouterr().err


def test_other_labels_in_the_configuration_are_refused(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert continued("--set", "task.labels=[praise, blame]") == 2
    expected = "task.labels: is ['praise', 'blame'], and the head of done has learned with ['blame', 'praise']"
    assert expected in capsys.readouterr().err
    assert continued("--set", "task.labels=[blame, praise]", *UNCHANGED) == 0


def test_the_head_of_an_encoder_of_another_kind_or_task_embedding_is_refused(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert continued(model="encoder") == 2
    assert "head: keep continues with the head of a finished run, and model: encoder is none" in capsys.readouterr().err
    assert continued("--set", "task.kind=regress") == 2
    expected = "of a run of the same kind, regress, and model: done is of the kind classify"
    assert expected in capsys.readouterr().err
    (work / "done" / "model" / "sha256.json").unlink()
    file = work / "done" / "model" / "task.json"
    file.write_text(file.read_text(encoding="utf-8").replace('"task_id": 0', '"task_id": 1'), encoding="utf-8")
    assert continued() == 2
    advice = "train.task_id: is 0, and the head of done has learned with 1; give --set train.task_id=1"
    assert advice in capsys.readouterr().err


def test_a_head_that_has_changed_is_another_run(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert continued(*UNCHANGED) == 0
    (work / "done" / "model" / "sha256.json").unlink()
    file = work / "done" / "model" / "head.safetensors"
    save_file({name: values + 1 for name, values in load_file(file).items()}, file)
    assert continued(*UNCHANGED) == 2
    assert "trained on other inputs under the same name: head changed since" in capsys.readouterr().err


def test_the_check_tells_whose_head_is_used(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "task.yaml", "--model", "done", "--set", "head=keep"]) == 0
    kept = capsys.readouterr().out
    assert "ok: its head is kept, that of a run of the kind classify" in kept
    assert main(["check", "task.yaml", "--model", "done"]) == 0
    new = capsys.readouterr().out
    assert "note: done is a run of the same kind, and a new head replaces its own" in new
    loss = [float(text.split(": loss ")[1].split(",")[0]) for text in (kept, new)]
    assert loss[0] < loss[1] / 2

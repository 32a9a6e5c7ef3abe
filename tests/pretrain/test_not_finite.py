"""Runs whose loss, gradients or weights are not finite fail, and write no model."""

from __future__ import annotations

from pathlib import Path

import pytest

from ernie.cli import main
from ernie.model.weights import read_arrays
from ernie.train.checkpoint import Checkpoints, check


def pretrain(config: Path, output: Path, *changes: str) -> int:
    settings = [word for change in changes for word in ("--set", change)]
    return main(["pretrain", str(config), "--output", str(output), "--quiet", *settings])


ONE_TASK = "schedule.tasks=[capitalization]"


def test_a_run_that_ends_in_steps_that_are_not_finite_fails_without_a_model(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = (ONE_TASK, "train.lr.peak=1e10", "train.lr.warmup=0", "schedule.steps_per_task=10")
    assert pretrain(config, tmp_path / "run", *changes) == 1
    printed = capsys.readouterr().err
    assert "not finite" in printed and "Traceback" not in printed
    assert not (tmp_path / "run" / "model").exists()
    assert pretrain(config, tmp_path / "run", *changes) == 1  # nor does the same command find it finished


def test_weights_that_the_last_step_breaks_are_not_saved(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The loss and the gradients of this step are finite, as those before it were."""
    run = tmp_path / "run"
    changes = (ONE_TASK, "train.lr.warmup=0", "train.lr.decay=linear", "schedule.steps_per_task=2", "save.every=1")
    assert pretrain(config, run, *changes) == 0
    (run / "model").rename(tmp_path / "model")
    longer = (*changes[:-2], "schedule.steps_per_task=3", "save.every=1", "train.lr.peak=3e38")
    capsys.readouterr()
    command = [
        "pretrain",
        str(config),
        "--output",
        str(run),
        "--quiet",
        "--allow-change=train",
        "--allow-change=schedule",
    ]
    assert main([*command, *(word for change in longer for word in ("--set", change))]) == 1
    printed = capsys.readouterr().err
    assert "after step 3: " in printed and "not finite" in printed and "Traceback" not in printed
    assert not (run / "model").exists()
    latest = Checkpoints(run / "checkpoints").latest()
    assert latest is not None and latest.name == "step-00000002"
    check(latest)
    assert read_arrays(latest / "model" / "model.safetensors")

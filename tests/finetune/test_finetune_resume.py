"""An interrupted trial resumes from its checkpoint, with the same result as an uninterrupted one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from support.fake_gpu import fake_gpu

from ernie.cli import main
from ernie.train.checkpoint import Checkpoints
from ernie.train.run_folder import run_lock

SAVE_EACH_STEP = ["--set", "save_minutes=1e-9"]
OPTIONS = ["--set", "train.epochs=3", "--set", "train.evaluations=2", "--set", "train.dropout=0.1"]


class Killed(BaseException):
    """Simulates the end of the process."""


def finetune(output: str, *more: str) -> int:
    return main(["finetune", "task.yaml", "--output", output, *OPTIONS, *more])


def killed_after(saves: int, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that runs the command and interrupts it after that many checkpoints."""
    write = Checkpoints.save

    def run(*words: str) -> None:
        saved: list[int] = []

        def save(self: Checkpoints, step: int, *args: Any) -> Path:
            path = write(self, step, *args)
            saved.append(step)
            if len(saved) == saves:
                raise Killed
            return path

        with monkeypatch.context() as patch:
            patch.setattr(Checkpoints, "save", save)
            with pytest.raises(Killed):
                finetune(*words, *SAVE_EACH_STEP)
        assert len(saved) == saves

    return run


def outcome(run: Path) -> tuple[Any, ...]:
    """Everything that a run records, except times."""
    trial = json.loads((run / "trials" / "seed=0" / "scores.json").read_text())
    curve = [{key: value for key, value in point.items() if key != "seconds"} for point in trial["curve"]]
    log = [json.loads(line) for line in (run / "trials" / "seed=0" / "metrics.jsonl").read_text().splitlines()]
    return trial["scores"], trial["best_step"], trial["steps"], curve, log


LOSS = ["--set", "task={class_weights: balanced, label_smoothing: 0.1, focal_gamma: 1}"]
WINDOWS = ["--set", "task.max_len=8", "--set", "task.windows={stride: 2, pooling: max}"]
LEVERS = ["--set", "train.ema=0.9", "--set", "train.r_drop=0.5", "--set", "train.adversarial={epsilon: 0.5, moves: 2}"]

TEACHER = [
    *("--set", "teacher={model: done, hidden: {}, relations: {heads: 4}, weight: 0.5}"),
    *("--set", "data.unlabeled=test.tsv"),
]
ADAPT = ["--set", "train.ema=0.9", "--set", "train.adapt={rank: 2, targets: [query, outer]}"]


def assert_resumes(
    work: Path, saves: int, more: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Assert that a run that is killed after so many checkpoints ends like one that is not."""
    assert finetune("whole", "--quiet", *more) == 0
    killed_after(saves, monkeypatch)("cut", *more)
    capsys.readouterr()
    assert finetune("cut", *more) == 0
    said = capsys.readouterr().err
    assert f"seed=0: resumes after step {saves}" in said
    assert ("teacher: done" in said) == (more == TEACHER)
    assert "before training" not in said  # the teacher's answers were kept
    assert not list((work / "cut" / "trials").glob("*.safetensors"))
    assert outcome(work / "cut") == outcome(work / "whole")
    assert ("- class weights: " in (work / "cut" / "README.md").read_text(encoding="utf-8")) == (more == LOSS + WINDOWS)
    files = sorted((work / "whole" / "model").rglob("*.safetensors"))
    assert any("adapter" in file.name for file in files) == (more == ADAPT)
    for file in files:
        whole, cut = load_file(file), load_file(work / "cut" / file.relative_to(work / "whole"))
        assert whole.keys() == cut.keys()
        for name, values in whole.items():
            np.testing.assert_array_equal(cut[name], values, err_msg=name)


@pytest.mark.parametrize(
    ("saves", "more"),
    [
        *((1, []), (4, LOSS + WINDOWS), (4, LEVERS), (4, ADAPT), (4, TEACHER)),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in ((9, []), (4, ["--set", "train.freeze=1"]))),
    ],
)
def test_resume_is_bit_for_bit_wherever_the_run_is_killed(
    work: Path, saves: int, more: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert_resumes(work, saves, more, monkeypatch, capsys)


def test_resume_on_a_gpu_is_bit_for_bit(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with fake_gpu() as device:
        assert_resumes(work, 4, [*LEVERS, "--set", "train.epochs=1"], monkeypatch, capsys)
        assert device.launches["flash_attn_unpadded"]


def test_a_run_that_another_process_has_locked_is_left_alone(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "run" / "trials").mkdir(parents=True)
    with run_lock(work / "run"):
        assert finetune("run") == 2
        assert "run: another process is at work on the run in this folder" in capsys.readouterr().err
        assert not (work / "run" / "config.yaml").exists()


def test_a_finished_trial_keeps_no_checkpoint_and_a_short_one_writes_none(work: Path) -> None:
    assert finetune("run", "--quiet", *SAVE_EACH_STEP) == 0
    assert not (work / "run" / "trials" / "seed=0" / "checkpoints").exists()
    assert not list((work / "done").rglob("checkpoints"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--set", "train.lr.peak=1e-3"], "train.lr.peak: was "),
        ("train.tsv", "holds a run trained on other inputs under the same name: data.train changed since"),
    ],
)
def test_a_checkpoint_of_another_configuration_or_other_rows_is_neither_resumed_nor_lost(
    work: Path,
    change: list[str] | str,
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert finetune("whole", "--quiet") == 0
    killed_after(2, monkeypatch)("run")
    before = (work / "train.tsv").read_text()
    if isinstance(change, str):
        lines = before.splitlines(keepends=True)
        (work / change).write_text("".join([lines[0], *lines[2:], lines[1]]))
    more = [] if isinstance(change, str) else change
    capsys.readouterr()
    assert finetune("run", *more) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Choose another --output, or delete the folder to start over." in error
    (work / "train.tsv").write_text(before)
    assert finetune("run") == 0
    assert "seed=0: resumes after step 2" in capsys.readouterr().err
    assert outcome(work / "run") == outcome(work / "whole")


def test_a_damaged_checkpoint_is_an_error_and_training_starts_over_without_it(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    killed_after(2, monkeypatch)("run")
    checkpoints = work / "run" / "trials" / "seed=0" / "checkpoints"
    (file,) = checkpoints.glob("*/model.safetensors")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    capsys.readouterr()
    assert finetune("run", "--quiet") == 2
    assert "model.safetensors: does not match its checksum" in capsys.readouterr().err
    shutil.rmtree(file.parent)
    assert finetune("run", "--quiet") == 0


def test_a_run_killed_after_its_patience_ran_out_trains_no_further(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At a rate of nearly zero no evaluation improves on the first, so patience runs out at the second."""
    no_progress = (
        "--set",
        "train.lr.peak=1e-12",
        "--set",
        "train.early_stopping_patience=1",
        "--set",
        "train.evaluations=1",
    )
    assert finetune("whole", "--quiet", *no_progress) == 0
    steps = json.loads((work / "whole" / "trials" / "seed=0" / "scores.json").read_text())["curve"][-1]["step"]
    killed_after(steps, monkeypatch)("cut", *no_progress)
    capsys.readouterr()
    assert finetune("cut", *no_progress) == 0
    assert f"seed=0: resumes after step {steps}" in capsys.readouterr().err
    assert outcome(work / "cut") == outcome(work / "whole")

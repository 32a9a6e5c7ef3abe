"""`ernie verify` finds what a run consumed otherwise than its configuration says."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from support.pretraining import pretrain

from ernie.cli import main
from ernie.errors import UserError
from ernie.sha256 import file_sha256
from ernie.train.checkpoint import MANIFEST, STATE, read_manifest
from pretrain import verify
from pretrain.scaling.points import read_run
from pretrain.verify import ConsumedSamples


def test_verify_says_which_change_made_it_draw_other_samples(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, run = finished[0], shutil.copytree(finished[1], tmp_path / "run")
    last = sorted((run / "checkpoints").iterdir())[-1]
    shutil.rmtree(last)
    shutil.rmtree(run / "model")
    assert (
        pretrain(config, run, "--set", "data.micro_batch_tokens=256", "--allow-change", "data.micro_batch_tokens") == 0
    )
    assert main(["verify", str(run), "--quiet"]) == 1
    assert "note: the run was resumed with other values of data.micro_batch_tokens: samples" in capsys.readouterr().out


def test_verify_finds_a_step_with_different_samples(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, _ = finished
    assert pretrain(config, tmp_path / "run") == 0
    metrics = tmp_path / "run" / "metrics.jsonl"
    lines = metrics.read_text(encoding="utf-8").splitlines()
    index = next(i for i, line in enumerate(lines) if '"kind": "step", "step": 11,' in line)
    record = json.loads(lines[index])
    record["samples"] = dict.fromkeys(record["samples"], "00000000")
    lines[index] = json.dumps(record)
    metrics.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert main(["verify", str(tmp_path / "run"), "--quiet"]) == 1
    found = capsys.readouterr().out
    assert "step 12: the samples' hash is" in found  # records count from 0, people from 1
    assert "NOT verified: 1 difference\n" in found


def test_verify_finds_a_missing_record_and_a_checkpoint_at_another_position(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(finished[1], tmp_path / "run")
    metrics = run / "metrics.jsonl"
    lines = metrics.read_text(encoding="utf-8").splitlines(keepends=True)
    metrics.write_text("".join(line for line in lines if '"kind": "step", "step": 5,' not in line), encoding="utf-8")
    last = run / "checkpoints" / "step-00000024"
    state, manifest = json.loads((last / STATE).read_text()), read_manifest(last)
    state["streams"]["capitalization"]["batch"] += 1
    (last / STATE).write_text(json.dumps(state))
    manifest["sha256"][STATE] = file_sha256(last / STATE)
    (last / MANIFEST).write_text(json.dumps(manifest))
    assert main(["verify", str(run), "--quiet"]) == 1
    found = capsys.readouterr().out
    assert "step 6: there is no record of it in metrics.jsonl\n" in found
    assert "checkpoint of step 24: capitalization is at {'epoch': " in found
    assert "NOT verified: 2 differences\n" in found


def test_verify_names_a_damaged_checkpoint_and_compares_the_others(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(finished[1], tmp_path / "run")
    first, *others = sorted((run / "checkpoints").glob("step-*"))
    (first / STATE).write_text("{}")
    assert main(["verify", str(run), "--quiet"]) == 1
    found = capsys.readouterr().out
    assert f"checkpoint of step {int(first.name[5:])}: {first / STATE}: does not match its checksum" in found
    assert others
    assert "NOT verified: 1 difference\n" in found


def test_verify_passes_over_a_checkpoint_that_a_run_removes_meanwhile(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(finished[1], tmp_path / "run")
    first, *others = sorted((run / "checkpoints").glob("step-*"))
    compare = verify.check

    def check(path: Path) -> None:
        shutil.rmtree(first, ignore_errors=True)
        compare(path)

    monkeypatch.setattr(verify, "check", check)
    assert main(["verify", str(run), "--quiet"]) == 0
    assert f"{len(others)} checkpoint" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("step", '"seconds"', '"hours"'),
        ("probe", '"task"', '"exercise"'),
        ("probe", '"perplexity": {"', '"perplexity": {"value": "x", "'),
        ("step", '"step": 3', '"step": 30'),
    ],
)
def test_a_damaged_record_is_reported_by_scaling(
    kind: str, old: str, new: str, finished: tuple[Path, Path], tmp_path: Path
) -> None:
    run = shutil.copytree(finished[1], tmp_path / "run")
    metrics = run / "metrics.jsonl"
    lines = metrics.read_text(encoding="utf-8").splitlines()
    number = next(i for i, line in enumerate(lines) if json.loads(line)["kind"] == kind and old in line)
    lines[number] = lines[number].replace(old, new).replace(', "value"', ', "former"')
    metrics.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"metrics\.jsonl: (step \d+: seconds|probe \d+: (task|scores)|holds what)"):
        read_run(run)


@pytest.mark.parametrize(
    ("taken", "problems"),
    [
        ([(0, 0, 0), (0, 2, 0), (0, 1, 0), (1, 2, 0)], []),
        ([(0, 0, 0), (0, 2, 0), (0, 1, 0), (1, 2, 0), (1, 2, 0)], ["epoch 1: 1 sample consumed twice"]),
        ([(0, 0, 0), (0, 2, 0), (1, 1, 0)], ["epoch 0: 1 of 3 samples missed"]),
        ([(0, 0, 0), (0, 0, 0), (0, 1, 0)], ["epoch 0: 1 sample consumed twice"]),
        ([], []),
    ],
)
def test_duplicate_and_missing_samples_are_reported(taken: list[tuple[int, int, int]], problems: list[str]) -> None:
    """A completed epoch must not miss any; the rest of the current one is still to come."""
    source = SimpleNamespace(items=range(3), named_samples=lambda epoch, first, last: iter(range(first, last)))
    consumed = ConsumedSamples()
    for name in taken:
        consumed.add(np.array([name]))
    assert consumed.problems(SimpleNamespace(epoch=1, source=source)) == problems  # type: ignore


def test_verify_finds_a_schedule_that_ends_before_the_run(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(finished[1], tmp_path / "run")
    text = (run / "config.yaml").read_text(encoding="utf-8")
    (run / "config.yaml").write_text(text.replace("steps_per_task: 8", "steps_per_task: 4"), encoding="utf-8")
    assert main(["verify", str(run), "--quiet"]) == 1
    message = "step 12: the schedule in config.yaml ends here, but the run has come to step 24"
    assert message in capsys.readouterr().out

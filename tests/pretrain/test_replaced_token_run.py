"""Runs with replaced-token detection: resume, layouts, what is saved, and the check."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from support.pretraining import outcome, pretrain
from support.processes import run_ernie

from ernie import ErnieModel
from ernie.cli import main
from ernie.model.weights import read_arrays
from ernie.train.checkpoint import Checkpoints
from ernie.train.log import read_records

NAME = "replaced_token_detection"


@pytest.fixture(scope="module")
def detection(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The YAML of a run of eight steps without dropout, and sizes that divide evenly."""
    text = config.read_text(encoding="utf-8")
    schedule = f"schedule: {{stages: [{{{NAME}: 6, capitalization: 2}}]}}\n"
    text = re.sub(r"schedule:\n.*\n.*\ntasks:\n.*\n", schedule, text)
    text = text.replace("layers: 1}", "layers: 1, vocab_size: 2000, dropout: 0.0, attention_dropout: 0.0}")
    text = text.replace("1e-3}}", "1e-3}, micro_batches: 2, precision: fp32}")
    file = tmp_path_factory.mktemp("detection") / "run.yaml"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def alone(detection: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its run on one process."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    assert pretrain(detection, folder, "--set", "save={every: 3, keep_last: 9}") == 0
    return folder


def test_a_run_resumes_bit_for_bit(detection: Path, alone: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(alone, run)
    for step in (6, 8):
        shutil.rmtree(run / "checkpoints" / f"step-{step:08d}")
    shutil.rmtree(run / "model")
    assert pretrain(detection, run, "--set", "save={every: 3, keep_last: 9}") == 0
    assert outcome(run) == outcome(alone)
    assert main(["verify", str(run), "--quiet"]) == 0


def test_the_generator_is_in_checkpoints_and_not_in_the_saved_encoder(alone: Path) -> None:
    latest = Checkpoints(alone / "checkpoints").latest()
    assert latest is not None
    assert f"{NAME}.generator.layers.0.q.weight" in read_arrays(latest / "heads.safetensors")
    names = [name for name, _ in ErnieModel.from_pretrained(alone / "model").named_parameters()]
    assert names
    assert not [name for name in names if "generator" in name]
    assert ErnieModel.from_pretrained(alone / "model").masked_head is None


@pytest.mark.parametrize(
    "parallel",
    [
        "{tensor: 2}",
        *(pytest.param(layout, marks=pytest.mark.slow) for layout in ("{}", "{sharding: 2, sharding_stage: 3}")),
    ],
)
def test_other_layouts_have_the_numbers_of_one_process(
    parallel: str, detection: Path, alone: Path, tmp_path: Path
) -> None:
    words = ["pretrain", str(detection), "--output", str(tmp_path / "run"), "--quiet", "--processes", "2"]
    done = run_ernie([*words, "--set", f"parallel={parallel}"], tmp_path)
    assert done.returncode == 0, done.stderr
    for record, reference in zip(read_records(tmp_path / "run", "step"), read_records(alone, "step"), strict=True):
        assert record["samples"] == reference["samples"]
        assert record["loss"] == pytest.approx(reference["loss"], rel=1e-6)
        assert record["gradient_norm"] == pytest.approx(reference["gradient_norm"], rel=1e-6)


@pytest.mark.parametrize(("processes", "parallel"), [("2", "{pipeline: 2}"), ("2", "{tensor: 2, sequence: true}")])
def test_a_layout_that_divides_the_encoder_s_input_is_rejected(
    processes: str, parallel: str, detection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--processes", processes, "--set", f"parallel={parallel}", "--set", "model.layers=2")
    assert pretrain(detection, tmp_path / "run", *options) == 2
    assert "a task of the run computes the encoder's input itself" in capsys.readouterr().err


def test_the_check_shows_the_task_and_finds_no_fault(detection: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", str(detection), "--check"]) == 0
    found = capsys.readouterr().out
    assert f"{NAME}:" in found
    assert "measured on held-out documents by f1, accuracy" in found
    assert "note: no gradient" not in found

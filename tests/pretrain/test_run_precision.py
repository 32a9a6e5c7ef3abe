"""The precision of a run: set by its configuration, limited by the machine, and kept on resuming."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from ernie.cli import main
from ernie.kernels.cpu.library import library
from ernie.train.log import read_records

ROOT = Path(__file__).parent.parent.parent
needs_bf16 = pytest.mark.skipif(
    not getattr(library(), "has_bf16", False), reason="these kernels do not compute in bfloat16"
)
AUTO = "bf16" if getattr(library(), "has_bf16", False) else "fp32"


def pretrain(config: Path, output: Path, *more: str) -> int:
    return main(["pretrain", str(config), "--output", str(output), "--quiet", *more])


def precision_of(run: Path) -> str:
    return yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))["train"]["precision"]


def losses(run: Path) -> list[float]:
    return [next(iter(record["loss"].values())) for record in read_records(run, "step")]


def weights(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


def without_kernels(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "ERNIE_KERNELS": "reference"}
    return subprocess.run(command, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def auto_run(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("precision") / "auto"
    assert pretrain(config, run) == 0
    return run


def test_the_saved_configuration_names_the_chosen_precision(auto_run: Path) -> None:
    assert precision_of(auto_run) == AUTO


@needs_bf16
def test_bfloat16_losses_are_close_to_float32_but_not_equal(config: Path, auto_run: Path, tmp_path: Path) -> None:
    assert pretrain(config, tmp_path / "run", "--set", "train.precision=fp32") == 0
    assert precision_of(tmp_path / "run") == "fp32"
    exact, low = losses(tmp_path / "run"), losses(auto_run)
    assert exact != low
    assert low == pytest.approx(exact, rel=0.02)


@needs_bf16
def test_a_killed_bfloat16_run_resumes_bit_for_bit(config: Path, auto_run: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    command = [sys.executable, "-m", "ernie.cli", "pretrain", str(config), "--output", str(run), "--quiet"]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)})
    while process.poll() is None and not (run / "checkpoints" / "step-00000010").is_dir():
        time.sleep(0.01)
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert pretrain(config, run) == 0
    assert precision_of(run) == "bf16"
    assert losses(run) == losses(auto_run)
    assert weights(run) == weights(auto_run)


@needs_bf16
def test_a_run_changes_its_precision_only_if_allowed(config: Path, auto_run: Path, tmp_path: Path) -> None:
    shutil.copytree(auto_run, tmp_path / "run")
    command = [sys.executable, "-m", "ernie.cli", "pretrain", str(config), "--quiet", "--output", str(tmp_path / "run")]
    done = without_kernels(command)
    assert done.returncode == 2
    assert "--allow-change train.precision" in done.stderr


def test_a_precision_that_the_cpu_lacks_is_reported(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pretrain(config, tmp_path / "run", "--set", "train.precision=fp16") == 2
    error = capsys.readouterr().err
    assert error.startswith("ernie: error: precision fp16: this machine computes in fp32")
    assert "precision: auto" in error
    assert not (tmp_path / "run").exists()


def test_without_bfloat16_support_bf16_is_rejected_and_auto_selects_fp32(config: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ernie.cli", "pretrain", str(config), "--quiet", "--output", str(tmp_path / "run")]
    rejected = without_kernels([*command, "--set", "train.precision=bf16"])
    assert rejected.returncode == 2
    assert "precision bf16: this machine computes in fp32 only" in rejected.stderr
    script = "from ernie.kernels.precision import resolve; print(resolve('auto'))"
    assert without_kernels([sys.executable, "-c", script]).stdout == "fp32\n"

"""`ernie doctor`: what it finds, measures and advises."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
from support.helpers import ROOT

from ernie.doctor import machine
from ernie.doctor.advice import advice
from ernie.doctor.machine import Gpu, Machine
from ernie.doctor.stack import Kernels, Paddle, Stack
from ernie.kernels.build import VARIANTS

HERE = Machine(
    processor="Some EPYC",
    vendor="AuthenticAMD",
    instructions=["AVX2"],
    cores=4,
    threads=4,
    threads_from=None,
    memory=16 << 30,
    memory_free=8 << 30,
    busy_cores=0.2,
    gpus=[],
    compiler="/usr/bin/g++: 12.2.0",
    cache="/home/someone/.cache",
    versions={"numpy": "2.0.0"},
)
KERNELS = Kernels("avx512", "avx512", "/somewhere/avx512.so", "shipped")
WITHOUT_PADDLE = """
from importlib.machinery import PathFinder
find = PathFinder.find_spec
PathFinder.find_spec = lambda name, *rest: None if name == "paddle" else find(name, *rest)
"""
STACK = Stack(Paddle("3.3.1", None, "cpu"), KERNELS, "fp32")


@pytest.fixture(autouse=True)
def default_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MKL_DEBUG_CPU_TYPE", "5")
    monkeypatch.delenv("ERNIE_KERNELS", raising=False)


def doctor(*arguments: str, path: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.endswith("NUM_THREADS")}
    folders = os.pathsep.join(map(str, [path, ROOT] if path else [ROOT]))
    return subprocess.run(
        [sys.executable, "-m", "ernie.cli", "doctor", *arguments],
        env={**kept, "PYTHONPATH": folders, **environment},
        capture_output=True,
        text=True,
    )


def test_there_is_no_advice_for_a_healthy_machine() -> None:
    assert advice(HERE, STACK) == []


@pytest.mark.parametrize(
    ("here", "stack", "sentence"),
    [
        ({"threads": 1, "threads_from": "OMP_NUM_THREADS"}, {}, "OMP_NUM_THREADS makes it 1 thread on 4 cores: unset"),
        ({"busy_cores": 3.5}, {}, "other programs keep 3.5 of 4 cores busy"),
        ({"versions": {"numpy": None, "tqdm": None}}, {}, "requires it: pip install numpy tqdm"),
        ({"gpus": [Gpu("NVIDIA H200")]}, {}, r"has a GPU \(NVIDIA H200\), but Paddle is the CPU wheel"),
        ({}, {"paddle": Paddle("3.3.1", "12.9", "cpu")}, "the wheel for CUDA 12.9, but finds no GPU"),
        (
            {"gpus": [Gpu("NVIDIA H200", "9.0"), Gpu("Tesla T4", "7.5")]},
            {"paddle": Paddle("3.3.1", "12.9", "gpu:0", "9.9", "22703")},
            "Tesla T4 is older than Ampere and has neither bf16 nor FlashAttention: set precision to fp16",
        ),
        ({}, {"paddle": Paddle("2.6.2", None, "cpu")}, "Paddle is 2.6.2, but the library is made for"),
        ({}, {"paddle": Paddle("3.4.0", None, "cpu")}, "Paddle is 3.4.0, but the library is made for"),
        ({"compiler": None}, {"kernels": Kernels("avx2", reason="no compiler")}, r"apt install g\+\+"),
        ({}, {"kernels": Kernels("avx2", reason="g++ could not")}, r"could not be built: g\+\+ could not"),
        ({}, {"kernels": replace(KERNELS, best="avx512_bf16")}, "too old for the avx512_bf16 kernels"),
    ],
)
def test_each_problem_gets_one_piece_of_advice(
    here: dict[str, object], stack: dict[str, object], sentence: str
) -> None:
    (found,) = advice(replace(HERE, **here), replace(STACK, **stack))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=sentence):
        raise ValueError(found)


def test_unsetting_variables_that_slow_it_down_is_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERNIE_KERNELS", "avx2")
    monkeypatch.setenv("MKL_DEBUG_CPU_TYPE", "0")
    chosen, slow_path = advice(HERE, replace(STACK, kernels=replace(KERNELS, variant="avx2")))
    assert "ERNIE_KERNELS=avx2 is slower than avx512" in chosen
    assert "MKL_DEBUG_CPU_TYPE is set" in slow_path
    assert advice(replace(HERE, vendor="GenuineIntel"), STACK) == ["ERNIE_KERNELS=avx2 is slower" + chosen[28:]]


def test_there_is_no_advice_on_kernels_that_the_processor_cannot_run_or_a_gpu_does_not_need() -> None:
    assert advice(HERE, replace(STACK, kernels=Kernels(None, reason="they need AVX2"))) == []
    gpu = Stack(Paddle("3.3.1", "12.9", "gpu:0"), Kernels("avx2", reason="on a GPU"), "bf16")
    assert advice(replace(HERE, gpus=[Gpu("NVIDIA H200", "9.0")], compiler=None), gpu) == []


def test_requirements_are_listed_with_their_versions() -> None:
    versions = machine.versions()
    assert versions["python"] == platform.python_version()
    assert versions["numpy"] == metadata.version("numpy")
    assert "pytest" not in versions  # only required by an extra
    assert None not in versions.values()


def test_gpus_are_those_that_the_driver_lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert machine.gpus() == []
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho NVIDIA H200, 9.0, 143771, 570.86.15\necho Tesla T4, 7.5, 15360, 570.86.15\n")
    program.chmod(0o755)
    driver = "570.86.15"
    wanted = [Gpu("NVIDIA H200", "9.0", 143771 << 20, driver), Gpu("Tesla T4", "7.5", 15360 << 20, driver)]
    assert machine.gpus() == wanted
    program.write_text("#!/bin/sh\ncase $1 in *compute_cap*) exit 2;; esac\necho Tesla K80\n")
    assert machine.gpus() == [Gpu("Tesla K80")]  # the driver is too old to tell
    program.write_text("#!/bin/sh\necho no driver; exit 9\n")
    assert machine.gpus() == []


def test_an_invalid_compiler_variable_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "'g++ -O2")
    assert machine.find().compiler == "CXX: No closing quotation"


def test_the_command_prints_what_was_found_chosen_and_measured() -> None:
    done = doctor()
    assert done.returncode == 0, done.stderr
    labels = [line.split("  ")[0] for line in done.stdout.splitlines()]
    for label in ("processor", "memory", "compiler", "paddle", "kernels", "precision", "fp32 Paddle"):
        assert label in labels


def test_the_json_output_holds_speeds_below_their_bounds() -> None:
    done = doctor("--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found) == ["machine", "stack", "speed", "advice"]
    assert found["stack"]["kernels"]["variant"] in [*VARIANTS, None]
    for rate in found["speed"]["products"]:
        assert 0 < rate["gflops"]
        assert rate["bound"] is None or rate["gflops"] <= rate["bound"]


def test_the_reason_for_missing_kernels_is_printed_to_standard_output() -> None:
    done = doctor(ERNIE_KERNELS="reference")
    assert done.returncode == 0 and done.stderr == ""
    assert "none: ERNIE_KERNELS is set to 'reference'" in done.stdout
    assert "precision     auto is fp32" in done.stdout


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_without_paddle_the_machine_and_install_instructions_are_printed(arguments: list[str], tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_PADDLE)
    done = doctor(*arguments, path=tmp_path)
    assert done.returncode == 2
    assert "pip install 'ernie-continual[cpu]'" in done.stderr
    assert "processor" in done.stdout
    if arguments:
        assert list(json.loads(done.stdout)) == ["machine"]


def test_without_paddle_an_import_says_how_to_install_it(tmp_path: Path) -> None:
    program = f"{WITHOUT_PADDLE}\nfrom ernie import ErnieModel"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert "PaddlePaddle is not installed. On a machine without a GPU: pip install 'ernie-" in done.stderr

"""`make gpu-proof`: no check takes the others with it, and none overlooks what is wrong."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from paddle import Tensor
from support.helpers import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))

import gpu_checks
import gpu_proof

from ernie.kernels import norm


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> dict[str, gpu_checks.Check]:
    """The checks, whose limits may be changed."""
    monkeypatch.setattr(gpu_proof, "CHECKS", dict(gpu_checks.CHECKS))
    return gpu_proof.CHECKS


def proof(folder: Path, *names: str) -> int:
    argv = sys.argv
    sys.argv = ["gpu_proof.py", "--output", str(folder), "--only", *names]
    try:
        return gpu_proof.main()
    finally:
        sys.argv = argv


def test_a_check_that_hangs_is_stopped_and_the_others_are_reported(
    tmp_path: Path, limits: dict[str, gpu_checks.Check], capsys: pytest.CaptureFixture[str]
) -> None:
    limits["speed"] = replace(limits["speed"], limit=0)
    assert proof(tmp_path, "machine", "speed") == 1
    (report,) = tmp_path.glob("*/report.html")
    text = report.read_text(encoding="utf-8")
    assert "1 right, 1 wrong" in text
    assert "stopped after its limit of 0 s" in text
    assert "Paddle computes on a CPU" in text
    assert str(report) in capsys.readouterr().out


def test_a_check_without_what_it_needs_says_so_and_is_not_wrong(tmp_path: Path) -> None:
    assert gpu_checks.tests(tmp_path).wrong == []
    assert "need a GPU" in gpu_checks.tests(tmp_path).missing[0]


def test_a_check_whose_process_dies_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "machine.json").mkdir()  # so that the check cannot write what it found
    result = gpu_proof.run("machine", tmp_path)
    assert result.state == "wrong"
    assert result.found["wrong"] == ["ended with status 1"]
    assert "machine.json" in result.found["text"]


def test_a_kernel_that_is_a_little_wrong_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = norm.add_norm

    def wrong(
        residual: Tensor, x: Tensor, gain: Tensor, offset: Tensor, epsilon: float, dropout: float = 0.0
    ) -> Tensor:
        return right(residual, x, gain, offset, epsilon, dropout) * (1.001 if x.shape[1] == 1024 else 1)

    assert gpu_checks.norm(tmp_path).wrong == []
    monkeypatch.setattr(norm, "add_norm", wrong)
    found = gpu_checks.norm(tmp_path)
    assert found.wrong
    assert all("1024 wide" in sentence for sentence in found.wrong)
    json.dumps(found.table)


def test_an_error_is_infinite_where_a_result_is_missing_or_not_finite() -> None:
    ones, broken = np.ones(3), np.array([1.0, np.nan, 1.0])
    assert gpu_checks.error([ones], [ones]) == 0
    assert gpu_checks.error([broken], [ones]) == gpu_checks.error([None], [ones]) == float("inf")

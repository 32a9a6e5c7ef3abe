"""--precision of the prediction commands, and train.precision of training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from ernie.cli import main
from ernie.kernels.cpu.library import library

KINDS = ["fp32", *(["bf16"] if getattr(library(), "has_bf16", False) else [])]


def answers(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, object]]:
    assert main(["predict", "done", "--input", "test.tsv", *words]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def labels(answers: list[dict[str, object]]) -> list[object]:
    return [answer["label"] for answer in answers]


def test_predict_returns_the_same_labels_in_each_precision(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = {kind: answers(capsys, "--precision", kind) for kind in KINDS}
    assert answers(capsys) == answers(capsys, "--precision", "auto") == found[KINDS[-1]]
    for kind in KINDS:
        assert labels(found[kind]) == labels(found["fp32"])
    if len(KINDS) > 1:
        assert found["bf16"] != found["fp32"]  # in the last digits


def test_evaluate_scores_the_same_in_each_precision(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scores = set()
    for kind in KINDS:
        assert main(["evaluate", "done", "--split", "test", "--quiet", "--precision", kind]) == 0
        scores.add(json.loads(capsys.readouterr().out)["accuracy"])
    assert len(scores) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "done", "--input", "test.tsv", "--precision", "fp16"),
        ("evaluate", "done", "--quiet", "--precision", "fp16"),
        ("finetune", "task.yaml", "--output", "new", "--quiet", "--set", "train.precision=fp16"),
    ],
)
def test_a_precision_that_a_cpu_cannot_compute_in_is_an_error(
    work: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    assert main(list(words)) == 2
    assert "precision fp16: this machine computes in fp32" in capsys.readouterr().err


def test_an_unknown_precision_is_an_error_that_lists_the_known_ones(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["finetune", "task.yaml", "--output", "new", "--quiet", "--set", "train.precision=bf61"]) == 2
    err = capsys.readouterr().err
    assert "train.precision" in err
    assert "bf16" in err


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_trains_in_the_given_precision(work: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--set", f"train.precision={kind}", "--output", "new", "--quiet")
    assert main(["finetune", "task.yaml", *words]) == 0
    assert yaml.safe_load((work / "new" / "config.yaml").read_text(encoding="utf-8"))["train"]["precision"] == kind
    capsys.readouterr()
    assert main(["evaluate", "new", "--split", "test", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] > 0.9

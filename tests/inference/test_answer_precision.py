"""--precision of the prediction commands, and train.precision of training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from ernie.cli import main
from ernie.kernels.cpu.library import library

TRAINING_KINDS = ["fp32", *(["bf16"] if getattr(library(), "has_bf16", False) else [])]
LOWER = ["int8", *TRAINING_KINDS[1:]]  # what a machine without bfloat16 has, too
needs_kernels = pytest.mark.skipif(library() is None, reason="int8 needs the kernels in C++")


def answers(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, object]]:
    assert main(["predict", "done", "--input", "test.tsv", *words]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def labels(answers: list[dict[str, object]]) -> list[object]:
    return [answer["label"] for answer in answers]


@needs_kernels
@pytest.mark.parametrize("kind", LOWER)
def test_predict_returns_the_labels_of_fp32_with_other_last_digits(
    work: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    full, lower = (answers(capsys, "--precision", name) for name in ("fp32", kind))
    assert labels(lower) == labels(full)
    assert lower != full


def test_the_precision_is_bf16_where_the_machine_has_it_else_fp32(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        answers(capsys) == answers(capsys, "--precision", "auto") == answers(capsys, "--precision", TRAINING_KINDS[-1])
    )


@needs_kernels
@pytest.mark.parametrize("kind", LOWER)
def test_evaluate_scores_the_same_in_each_precision(work: Path, capsys: pytest.CaptureFixture[str], kind: str) -> None:
    scores = set()
    for name in ("fp32", kind):
        assert main(["evaluate", "done", "--split", "test", "--quiet", "--precision", name]) == 0
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


@pytest.mark.parametrize("kind", TRAINING_KINDS)
def test_a_run_trains_in_the_given_precision(work: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--set", f"train.precision={kind}", "--output", "new", "--quiet")
    assert main(["finetune", "task.yaml", *words]) == 0
    assert yaml.safe_load((work / "new" / "config.yaml").read_text(encoding="utf-8"))["train"]["precision"] == kind
    capsys.readouterr()
    assert main(["evaluate", "new", "--split", "test", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["accuracy"] > 0.9

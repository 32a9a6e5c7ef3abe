"""What stands in the way of a pretraining run is reported before it starts."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from support.pretraining import pretrain
from support.running import build_corpus, made_up_text


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("corpus=nowhere", "is not a corpus"),
        ("tasks.sentence_reordering.max_len=40000", "do not fit into data.micro_batch_tokens"),
        ("data.max_len=600", "cannot hold one sample"),
        ("model.max_positions=16", "need as many positions"),
        ("model.start_from=nowhere", "no such folder"),
        ("model.preset=smal", "Did you mean 'small'?"),
        ("schedule.tasks=[knowledge_maskin]", "Did you mean 'knowledge_masking'?"),
        ("train.lr.peek=1", "Did you mean 'peak'?"),
        ("plugins=[no_such_module]", "cannot be imported"),
        ("model.task_vocab_size=1", "task ids"),
        ("model.vocab_size=10", "do not belong together"),
        ("seed=-1", "seed: expected a number from 0 to"),
        ("seed=99999999999999999999", "seed: expected a number from 0 to"),
    ],
)
def test_user_errors_are_reported_with_status_2(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], override: str, expected: str
) -> None:
    assert pretrain(config, tmp_path / "run", "--set", override) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert "Traceback" not in error


def test_a_folder_that_holds_something_else_is_left_alone(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("mine")
    assert pretrain(config, tmp_path / "run") == 2
    assert "is not empty and holds no run" in capsys.readouterr().err


def test_leftovers_of_a_run_killed_at_startup_are_no_problem(config: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in (".lock", "origin.json.partial"):
        (run / name).write_text("")
    few = ["--set", "schedule.steps_per_task=2"]
    assert pretrain(config, run, *few) == 0
    shutil.rmtree(run / "checkpoints")
    shutil.rmtree(run / "model")
    (run / "config.yaml").unlink()  # it is written after origin.json
    assert pretrain(config, run, *few) == 0


def test_a_model_without_a_checkpoint_is_not_overwritten(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, run = finished
    copy = shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(copy / "checkpoints")
    logged = (copy / "metrics.jsonl").read_bytes()
    assert pretrain(config, copy) == 2
    assert "holds a model, but no checkpoint to resume from" in capsys.readouterr().err
    assert (copy / "metrics.jsonl").read_bytes() == logged


def test_a_model_with_another_vocabulary_than_the_corpus_is_rejected(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, run = finished
    other = build_corpus(made_up_text(tmp_path / "text.txt"), tmp_path)
    text = re.sub(r"model: .*\n", f"model: {{start_from: {run}}}\n", config.read_text(encoding="utf-8"))
    (tmp_path / "on.yaml").write_text(re.sub(r"corpus: .*\n", f"corpus: {other}\n", text), encoding="utf-8")
    assert pretrain(tmp_path / "on.yaml", tmp_path / "run") == 2
    assert "has another vocabulary than the corpus" in capsys.readouterr().err

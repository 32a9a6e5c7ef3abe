"""Processes that read the sounds of a fine-tuning ahead of its steps, `workers` in its configuration."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.processes import processes_in, run_ernie, start_ernie, wait_until
from support.toys import TOKENIZER, TOYS, tiny_encoder

from ernie.audio.augment import AugmentConfig
from ernie.data.labeled.read import Split
from ernie.errors import UserError
from ernie.model.weights import arrays
from ernie.train.lr_schedule import LRScheduleConfig
from finetune.config import FinetuneConfig, TrainConfig
from finetune.prepare import prepare
from finetune.train.loop import finetune
from tasks.downstream.transcribe import Transcribe

CHANGED = AugmentConfig(speed=0.1, pitch=0.1, noise=(5, 20), time_masks=1, time_width=3)
CONFIG = """
task: {kind: transcribe, max_len: 32, features: {bins: 20}, augment: {speed: 0.1, noise: [5, 20]}}
data: {train: train.jsonl, dev: dev.jsonl}
model: encoder
train: {epochs: 2, batch: 8, lr: {peak: 1e-3}}
"""


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Rows with sounds, an encoder, and a configuration."""
    for name, count in (("train", 40), ("dev", 8)):
        rows = (json.dumps(dict(row)) for row in TOYS["transcribe"].rows(count, count))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    tiny_encoder().save_pretrained(tmp_path / "encoder")
    (tmp_path / "task.yaml").write_text(CONFIG, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("kind", ["transcribe", "synthesize"])
def test_the_model_does_not_depend_on_who_reads_the_sounds(kind: str) -> None:
    toy = TOYS[kind]
    task = replace(toy.task, augment=CHANGED, max_len=32) if isinstance(toy.task, Transcribe) else toy.task
    train, dev = (
        prepare(task, Split(name, toy.rows(24, seed)), TOKENIZER) for name, seed in (("train", 0), ("dev", 1))
    )
    # In micro-batches of three sounds, so that a step has several.
    settings = TrainConfig(epochs=2, batch=8, micro_batch_tokens=40, lr=LRScheduleConfig(peak=4e-3))
    runs = [finetune(tiny_encoder(), task, train, dev, settings, workers=workers) for workers in (0, 2)]
    (alone, found), (ahead, again) = runs
    assert [each.scores for each in again] == [each.scores for each in found]
    assert [each.loss for each in again] == [each.loss for each in found]
    expected = arrays(alone)
    for name, values in arrays(ahead).items():
        np.testing.assert_array_equal(values, expected[name], err_msg=name)


def test_a_run_goes_on_with_another_number_of_workers(work: Path) -> None:
    words = ["finetune", "task.yaml", "--set", "save_minutes=0.0001", "--output"]
    with start_ernie([*words, "resumed", "--set", "workers=1"], work) as process:
        checkpoints = work / "resumed" / "trials" / "seed=0" / "checkpoints"
        wait_until(lambda: checkpoints.is_dir() and any(checkpoints.iterdir()), process)
        process.send_signal(signal.SIGINT)
        said = process.communicate()[1].decode()
    assert "Traceback" not in said
    found = []
    for output in ("whole", "resumed"):
        done = run_ernie([*words, output], work)
        assert done.returncode == 0, done.stderr
        found.append(json.loads((work / output / "scores.json").read_text(encoding="utf-8"))["scores"])
    assert "resumes after step" in done.stderr
    assert found[0] == found[1]


def test_a_worker_that_is_killed_is_told_with_the_way_out(work: Path) -> None:
    words = ["finetune", "task.yaml", "--output", "run", "--set", "workers=1", "--set", "train.epochs=2000"]
    with start_ernie(words, work) as process:
        wait_until(lambda: bool(processes_in(work, "spawn_main")), process)
        os.kill(*processes_in(work, "spawn_main"), signal.SIGKILL)
        said = process.communicate()[1].decode()
    assert process.returncode == 2, said
    assert "a worker process was killed; the usual reason is that memory ran out. The same command goes on" in said
    assert "Traceback" not in said


def test_a_negative_number_of_workers_is_refused() -> None:
    with pytest.raises(UserError, match="workers: expected at least 0, found -1"):
        FinetuneConfig(TOYS["transcribe"].task, workers=-1)

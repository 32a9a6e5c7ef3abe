"""Processes that read the sounds of a fine-tuning ahead of its steps, `workers` in its configuration."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np
import pytest
import soundfile
from support.processes import processes_in, run_ernie, start_ernie, wait_until
from support.toys import TOKENIZER, TOYS, tiny_encoder

from ernie.audio.augment import AugmentConfig
from ernie.data.batch import Packed
from ernie.data.labeled.read import Split
from ernie.errors import UserError
from ernie.model.weights import arrays
from ernie.parallel.mesh import Mesh
from ernie.train.lr_schedule import LRScheduleConfig
from finetune.config import FinetuneConfig, TrainConfig
from finetune.prepare import prepare
from finetune.train.batches import Batches
from finetune.train.loop import finetune
from finetune.train.steps import Samples
from tasks.downstream.transcribe import Transcribe

T = TypeVar("T")
ROOT = Path(__file__).parents[2]
CHANGED = AugmentConfig(speed=0.1, pitch=0.1, noise=(5, 20), time_masks=1, time_width=3)
SLOW_KIND = """
import time
from dataclasses import dataclass

from tasks.downstream.base import finetune_task
from tasks.downstream.transcribe import Transcribe


@finetune_task("slow")
@dataclass(frozen=True, kw_only=True)
class Slow(Transcribe):
    \"\"\"A kind whose sounds take long to read.\"\"\"

    def augmented(self, batch, training):
        time.sleep(2.0 * training)
        return super().augmented(batch, training)
"""
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


@dataclass(frozen=True, kw_only=True)
class Heard(Transcribe):
    """Keeps the features that its model learns from."""

    heard: ClassVar[list[np.ndarray]] = []

    def augmented(self, batch: Packed, training: bool) -> Packed:
        found = super().augmented(batch, training)
        if training and found.frames is not None:
            self.heard.append(found.frames.features[found.frames.layout.starts])
        return found


def test_each_seed_hears_other_changes_of_a_sound() -> None:
    toy = TOYS["transcribe"]
    options = {field.name: getattr(toy.task, field.name) for field in fields(Transcribe) if field.init}
    task = Heard(**options | {"augment": AugmentConfig(noise=(5, 20)), "max_len": 32})
    train, dev = (prepare(task, Split(name, toy.rows(8, seed)), TOKENIZER) for name, seed in (("train", 0), ("dev", 1)))
    heard = []
    for seed in (0, 1, 0):
        Heard.heard.clear()
        finetune(tiny_encoder(), task, train, dev, TrainConfig(epochs=1, batch=8, lr=LRScheduleConfig(peak=4e-3)), seed)
        heard.append(np.concatenate(Heard.heard))
    first, other, again = (np.unique(frames, axis=0) for frames in heard)
    np.testing.assert_array_equal(first, again)
    assert not (first[:, None] == other[None]).all(-1).any()


def test_a_run_goes_on_with_another_number_of_workers(work: Path) -> None:
    words = ["finetune", "task.yaml", "--set", "save_minutes=0.0001", "--set", "train.epochs=20", "--output"]
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
    log = work / "run" / "trials" / "seed=0" / "metrics.jsonl"
    with start_ernie(words, work) as process:
        wait_until(lambda: log.is_file() and b'"step"' in log.read_bytes(), process)
        os.kill(*processes_in(work, "spawn_main"), signal.SIGKILL)
        said = process.communicate()[1].decode()
    assert process.returncode == 2, said
    assert "a worker process was killed; the usual reason is that memory ran out. The same command goes on" in said
    assert "Traceback" not in said


def test_a_signal_to_all_processes_while_a_step_waits_for_sounds_saves(work: Path) -> None:
    (work / "slow_kind.py").write_text(SLOW_KIND, encoding="utf-8")
    words = ["finetune", "task.yaml", "--set", "task.kind=slow", "--set", "plugins=[slow_kind]", "--set", "workers=2"]
    log = work / "run" / "trials" / "seed=0" / "metrics.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-m", "ernie.cli", *words, "--output", "run"],
        cwd=work,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{work}"},
        stderr=subprocess.PIPE,
        start_new_session=True,  # a group of its own, whose processes all get the signal
    )
    try:
        wait_until(lambda: log.is_file() and b'"step"' in log.read_bytes(), process)
        os.killpg(process.pid, signal.SIGTERM)
        said = process.communicate(timeout=60)[1].decode()
    finally:
        process.kill()
    assert process.returncode == 128 + signal.SIGTERM, said
    assert "SIGTERM: finishing this step and saving" in said
    assert any((log.parent / "checkpoints").iterdir())
    assert "FatalError" not in said and "Traceback" not in said


def test_a_sound_that_vanishes_is_told_as_it_is_without_workers(work: Path) -> None:
    for name in ("train", "dev"):
        rows = [json.loads(line) for line in (work / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
        for number, row in enumerate(rows):
            samples = np.array(row["audio"]["array"], np.float32)
            soundfile.write(work / f"{name}-{number}.wav", samples, row["audio"]["sampling_rate"])
            row["audio"] = f"{name}-{number}.wav"
        (work / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    words = ["finetune", "task.yaml", "--output", "run", "--set", "workers=1", "--set", "train.epochs=2000"]
    log = work / "run" / "trials" / "seed=0" / "metrics.jsonl"
    with start_ernie(words, work) as process:
        wait_until(lambda: log.is_file() and b'"step"' in log.read_bytes(), process)
        (work / "train-7.wav").unlink()
        said = process.communicate()[1].decode()
    assert process.returncode == 2, said
    assert re.search(r"ernie: error: seed=0: .*train-7.wav: there is no such file", said), said
    assert "Traceback" not in said


class Replica(Mesh):
    """One of several processes that share a step."""

    def __init__(self, number: int, count: int):
        super().__init__()
        self.number, self.count = number, count

    def shard(self, items: Sequence[T]) -> list[T]:
        return list(items[self.number :: self.count])


@pytest.mark.parametrize("workers", [0, 1])
def test_a_process_reads_the_sounds_of_its_own_micro_batches_or_of_all_if_none_is_its_own(workers: int) -> None:
    task = TOYS["transcribe"].task
    samples = [sample for row in TOYS["transcribe"].rows(3) for sample in task.training_example(row, TOKENIZER).samples]
    step = [Samples([sample], np.array([[0, number, 0]])) for number, sample in enumerate(samples)]
    for count, number, with_features in ((1, 0, {0, 1, 2}), (2, 1, {1}), (2, 0, {0, 2}), (4, 3, {0, 1, 2})):
        batches = Batches(task, Replica(number, count), workers)
        [found] = batches.of([step])
        batches.close()
        assert {place for place, batch in enumerate(found) if batch.frames is not None} == with_features
        assert [batch.targets for batch in found] == [samples.packed().targets for samples in step]
        assert all(not batch.sounds for batch in found)


def test_a_negative_number_of_workers_is_refused() -> None:
    with pytest.raises(UserError, match="workers: expected at least 0, found -1"):
        FinetuneConfig(TOYS["transcribe"].task, workers=-1)

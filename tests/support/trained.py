"""Toys' trained models: each is trained once, however many processes run the tests."""

from __future__ import annotations

import os
import pickle
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from filelock import FileLock
from support.toys import TOKENIZER, TOYS, Toy, tiny_encoder

from ernie.audio.features import FeatureConfig
from ernie.data.labeled.read import Split
from ernie.train.lr_schedule import LRScheduleConfig
from finetune.config import TrainConfig
from finetune.prepare import prepare
from finetune.train.loop import finetune
from finetune.train.trial_checkpoint import Evaluation
from inference.task_model import TaskModel


@dataclass(frozen=True)
class Trained:
    """The result of fine-tuning on a toy."""

    model: TaskModel
    evaluations: list[Evaluation]


def train(toy: Toy) -> Trained:
    """Fine-tune a tiny encoder on a toy."""
    train, dev = (
        prepare(toy.task, Split(name, toy.rows(count, seed)), TOKENIZER)
        for name, count, seed in (("train", toy.train_rows, 0), ("dev", toy.dev_rows, 1))
    )
    settings = TrainConfig(epochs=10, batch=16, lr=LRScheduleConfig(peak=4e-3))
    return Trained(*finetune(tiny_encoder(), toy.task, train, dev, settings))


def streaming() -> Toy:
    """The toy of transcription, with sounds that are read in chunks of two vectors."""
    toy, features = TOYS["transcribe"], FeatureConfig(bins=20, normalize="global")
    task = replace(toy.task, features=features, encoder="chunks", chunk_size=2, left_chunks=4, max_len=40)
    return replace(toy, task=task.adapted_to(toy.rows(60)))


@cache
def trained(kind: str) -> Trained:
    """Return what `train` returns for the toy of a kind of ours, or for `streaming`.

    The first process that asks for it trains it.
    """
    folder = Path(os.environ["ERNIE_TESTS_SHARED"]) / kind
    evaluations = folder.with_suffix(".pickle")
    with FileLock(folder.with_suffix(".lock")):
        if not evaluations.exists():
            found = train(streaming() if kind == "streaming" else TOYS[kind])
            found.model.save(folder)
            evaluations.write_bytes(pickle.dumps(found.evaluations))
    return Trained(TaskModel.load(folder, precision="fp32"), pickle.loads(evaluations.read_bytes()))

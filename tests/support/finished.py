"""A finished fine-tuning run on rows whose label depends on one word, with its data and its encoder."""

from __future__ import annotations

import os
import random
from pathlib import Path

import paddle
from support.helpers import vocabulary

from ernie.cli import main
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel

CONFIG = """\
task: {kind: classify, max_len: 16}
data: {train: train.tsv, dev: dev.tsv, test: test.tsv}
model: encoder
train: {epochs: 5, batch: 10, lr: {peak: 3e-3}}
"""
LABEL_WORDS = {"blame": ("bad", "poor"), "praise": ("good", "fine")}


def random_rows(count: int, seed: int) -> list[tuple[str, str]]:
    """Random texts, each with its label and one word that gives it away."""
    rng = random.Random(seed)
    rows = []
    for _ in range(count):
        label = rng.choice(sorted(LABEL_WORDS))
        words = [
            *rng.choices(["it", "was", "very", "the", "film"], k=rng.randint(2, 7)),
            rng.choice(LABEL_WORDS[label]),
        ]
        rng.shuffle(words)
        rows.append((" ".join(words), label))
    return rows


def write_rows(file: Path, rows: list[tuple[str, str]]) -> None:
    file.write_text("".join(f"{text}\t{label}\n" for text, label in [("text", "label"), *rows]), encoding="utf-8")


def finished_run(folder: Path) -> Path:
    """Fill a folder with an encoder, train.tsv, dev.tsv, test.tsv, task.yaml, and `done`, a finished run of it."""
    paddle.seed(0)
    tokenizer = vocabulary("good fine bad poor it was very the film")
    shape = {"hidden_size": 32, "layers": 1, "heads": 2, "intermediate_size": 64, "max_positions": 32}
    model = ErnieModel(EncoderConfig(vocab_size=tokenizer.vocab_size, dropout=0.0, attention_dropout=0.0, **shape))
    model.tokenizer = tokenizer
    model.save_pretrained(folder / "encoder")
    for seed, (name, count) in enumerate({"train": 160, "dev": 50, "test": 30}.items()):
        write_rows(folder / f"{name}.tsv", random_rows(count, seed))
    (folder / "task.yaml").write_text(CONFIG, encoding="utf-8")
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert main(["finetune", "task.yaml", "--output", "done", "--quiet"]) == 0
    finally:
        os.chdir(before)
    return folder

"""Fine-tuning by the library's own command, and untrained encoders, shared by several of these benchmarks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import paddle
import yaml

from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.text.tokenizer import Tokenizer
from ernie.text.wordpiece import SPECIAL_TOKENS, WordPiece


def fine_tuned(
    run: Path, model: Path, task: dict[str, Any], data: dict[str, str], seed: int, head: str = "new", **train: Any
) -> Path:
    """Fine-tune unless that is done; return the run's folder.  `train` overrides settings for a small decoder."""
    if not (run / "scores.json").is_file():
        lr = {"peak": 1e-3, "warmup": 0.1}
        settings = {"dropout": 0.1, "lr": lr, "evaluations": 1, "early_stopping_patience": 0, **train}
        run.parent.mkdir(parents=True, exist_ok=True)
        file = run.with_name(f"{run.name}.yaml")
        config = {"task": task, "data": data, "model": str(model), "head": head, "train": settings}
        file.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
        ernie("finetune", str(file), "--seed", str(seed), "--output", str(run), "--quiet")
    return run


def untrained_small(folder: Path, tokenizer: Tokenizer, **shape: Any) -> Path:
    """The folder of a small untrained encoder of a shape."""
    return untrained(folder, tokenizer, EncoderConfig(vocab_size=tokenizer.vocab_size, initializer_range=0.05, **shape))


def untrained(folder: Path, tokenizer: Tokenizer, config: EncoderConfig) -> Path:
    """The folder of an untrained encoder, made with a fixed seed unless the folder exists."""
    if not folder.is_dir():
        paddle.seed(0)
        model = ErnieModel(config)
        model.tokenizer = tokenizer
        model.save_pretrained(folder)
    return folder


def letter_pieces(letters: Iterable[str]) -> WordPiece:
    """A vocabulary of letters: at the start of a word, and within (##)."""
    distinct = sorted(set(letters))
    return WordPiece([*SPECIAL_TOKENS, *distinct, *(f"##{letter}" for letter in distinct)])


def ernie(*words: str) -> None:
    """Run an `ernie` command without its output."""
    subprocess.run([sys.executable, "-m", "ernie.cli", *words], check=True, stdout=subprocess.DEVNULL)

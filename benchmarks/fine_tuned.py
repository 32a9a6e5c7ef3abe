"""Fine-tuning by the library's own command, and encoders to begin with, as several of these programs do it."""

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


def fine_tuned(run: Path, model: Path, task: dict[str, Any], data: dict[str, str], seed: int, **train: Any) -> Path:
    """The folder of a run that is done; a small decoder's settings of training, and what `train` changes of them."""
    if not (run / "scores.json").is_file():
        rate = {"peak": 1e-3, "warmup": 0.1}
        settings = {"dropout": 0.1, "rate": rate, "evaluations": 1, "patience": 0, **train}
        run.parent.mkdir(parents=True, exist_ok=True)
        file = run.with_name(f"{run.name}.yaml")
        config = {"task": task, "data": data, "model": str(model), "train": settings}
        file.write_text(yaml.safe_dump(config, sort_keys=False), encoding="utf-8")
        ernie("finetune", str(file), "--seed", str(seed), "--output", str(run), "--quiet")
    return run


def knows_nothing(place: Path, tokenizer: Tokenizer, **shape: Any) -> Path:
    """The folder of a small encoder that knows nothing."""
    return untrained(place, tokenizer, EncoderConfig(vocab_size=tokenizer.vocab_size, initializer_range=0.05, **shape))


def untrained(place: Path, tokenizer: Tokenizer, config: EncoderConfig) -> Path:
    """The folder of an encoder that knows nothing, the same one every time; it is made where there is none."""
    if not place.is_dir():
        paddle.seed(0)
        model = ErnieModel(config)
        model.tokenizer = tokenizer
        model.save_pretrained(place)
    return place


def letter_pieces(letters: Iterable[str]) -> WordPiece:
    """A vocabulary of letters, those that begin a word and those within."""
    chosen = sorted(set(letters))
    return WordPiece([*SPECIAL_TOKENS, *chosen, *(f"##{letter}" for letter in chosen)])


def ernie(*words: str) -> None:
    """Run a command."""
    subprocess.run([sys.executable, "-m", "ernie.cli", *words], check=True, stdout=subprocess.DEVNULL)

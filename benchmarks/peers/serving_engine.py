"""The engine that all sides of benchmarks/serving_load.py serve: a classifier of MiniLM's shape with random weights.

serving_engine.py FOLDER writes it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import paddle

import inference
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.text.wordpiece import SPECIAL_TOKENS, WordPiece
from inference.operation import Operation
from inference.task_model import TaskModel
from tasks.downstream.classify import Classify

VOCABULARY = 30522


def write(folder: Path) -> None:
    """Write the model: its words are w5, w6, ..., a token each."""
    paddle.seed(0)
    ernie = ErnieModel(EncoderConfig(VOCABULARY, 384, 6, 12, 1536, task_vocab_size=0))
    ernie.tokenizer = WordPiece([*SPECIAL_TOKENS, *(f"w{i}" for i in range(len(SPECIAL_TOKENS), VOCABULARY))])
    TaskModel(ernie, Classify(labels=("dull", "moving"), max_len=512)).save(folder)


class Engine:
    """The model as a function of texts, for servers that batch themselves."""

    def __init__(self, folder: str):
        self._operation: Operation = inference.load(folder, precision="fp32").operations["predict"]

    def answer(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Return the answers to texts, computed as one batch without padding."""
        return [outcome.get() for outcome in self._operation.compute([self._operation.prepare(t) for t in texts])]


if __name__ == "__main__":
    write(Path(sys.argv[1]))

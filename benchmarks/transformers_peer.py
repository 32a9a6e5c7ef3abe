"""Pretraining by transformers and PyTorch in an environment of their own, on the text and vocabulary of a corpus."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ernie.atomic import replacing
from ernie.data.shards import Corpus

SCRIPT = Path(__file__).parent / "peers" / "pretrain_transformers.py"


@dataclass(frozen=True)
class Transformers:
    """BertForMaskedLM, or ModernBertForMaskedLM, of a `shape`, with `rows` of `length` tokens in a batch.

    `python` is the interpreter of an environment with torch and transformers, and `corpus` a folder written by
    `ernie data build` with a WordPiece tokenizer.  The tokens of all training documents are written to the file `ids`.
    """

    python: str
    corpus: Path
    ids: Path
    shape: Mapping[str, Any]
    rows: int
    length: int
    architecture: str = "bert"

    def pretrain(self, run: Path, *, seed: int, steps: int, parts: int, peak: float, precision: str) -> list[Path]:
        """Pretrain unless that is done, or go on; return the models after each part of the steps."""
        models = [run / f"part-{number}" for number in range(1, parts + 1)]
        if models[-1].is_dir():
            return models
        if not self.ids.exists():
            self.ids.parent.mkdir(parents=True, exist_ok=True)
            ids = np.concatenate([np.asarray(document.ids) for document in Corpus.open(self.corpus).train])
            with replacing(self.ids) as partial, partial.open("wb") as file:
                np.save(file, ids)
        options = {
            "ids": self.ids,
            "vocabulary": self.corpus / "tokenizer" / "vocab.txt",
            "shape": json.dumps(self.shape),
            "output": run,
            "steps": steps,
            "parts": parts,
            "seed": seed,
            "rows": self.rows,
            "length": self.length,
            "architecture": self.architecture,
            "precision": precision,
            "peak": peak,
        }
        words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
        subprocess.run([self.python, str(SCRIPT), *words], check=True)
        return models


def logged(run: Path, key: str) -> list[float]:
    """A value that the peer logged in every step: `seconds` or `loss`."""
    return [json.loads(line)[key] for line in (run / "steps.jsonl").read_text(encoding="utf-8").splitlines()]

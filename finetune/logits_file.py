"""The logits of rows as a file, as a kind's `answer` takes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ernie.atomic import replacing
from ernie.model.weights import read_arrays, save_arrays
from tasks.downstream.base import LogitsTask


def write_logits(file: Path, logits: Sequence[Sequence[np.ndarray]]) -> None:
    """Write the logits of rows, atomically: all of them, the tokens of each part, and the parts of each row."""
    parts = [part.reshape(-1, part.shape[-1]) for row in logits for part in row]
    counts = {"tokens": [len(part) for part in parts], "parts": [len(row) for row in logits]}
    with replacing(file) as partial:
        save_arrays({"logits": np.concatenate(parts), **{key: np.array(each) for key, each in counts.items()}}, partial)


def read_logits(file: Path, task: LogitsTask) -> list[list[np.ndarray]]:
    """Read what `write_logits` wrote of a task.  Raises UserError if the file is damaged."""
    arrays = read_arrays(file)
    split = np.split(arrays["logits"], np.cumsum(arrays["tokens"])[:-1])
    parts = iter(split if task.per_token else [part[0] for part in split])
    return [[next(parts) for _ in range(count)] for count in arrays["parts"].tolist()]

"""The engine that other servers of benchmarks/serving_load.py serve: a classifier as a function of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import inference
from inference.operation import Operation


class Engine:
    """The model as a function of texts, for servers that batch themselves."""

    def __init__(self, folder: str):
        self._operation: Operation = inference.load(folder, precision="fp32").operations["predict"]

    def answer(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Return the answers to texts, computed as one batch without padding."""
        return [outcome.get() for outcome in self._operation.compute([self._operation.prepare(t) for t in texts])]

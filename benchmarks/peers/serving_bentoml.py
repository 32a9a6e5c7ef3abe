"""The engine behind BentoML, for benchmarks/serving_load.py: `serving_bentoml.py FOLDER PORT`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import bentoml


@bentoml.service(traffic={"timeout": 10})
class Classifier:
    """Answers bodies like {"inputs": ["a text"]}."""

    def __init__(self) -> None:
        from serving_engine import Engine

        self._engine = Engine(os.environ["FOLDER"])

    @bentoml.api(batchable=True, max_batch_size=64, max_latency_ms=1000)
    def predict(self, inputs: list[str]) -> list[dict]:
        return self._engine.answer(inputs)


if __name__ == "__main__":
    folder, port = sys.argv[1:3]
    command = [sys.executable, "-m", "bentoml", "serve", "serving_bentoml:Classifier", "--port", port]
    environment = {**os.environ, "FOLDER": folder, "BENTOML_DO_NOT_TRACK": "1"}
    sys.exit(subprocess.run([*command, "--host", "127.0.0.1"], env=environment, cwd=Path(__file__).parent).returncode)

"""The engine behind mosec, for benchmarks/serving_load.py: `serving_mosec.py FOLDER PORT`."""

from __future__ import annotations

import os
import sys

import msgspec
from mosec import Server, Worker
from serving_engine import Engine


class Classifier(Worker):
    """Answers bodies like {"inputs": ["a text"]}."""

    def __init__(self) -> None:
        self._engine = Engine(os.environ["FOLDER"])

    def forward(self, data: list[dict]) -> list[dict]:
        answers = self._engine.answer([each["inputs"][0] for each in data])
        return [{"results": [{"value": answer}]} for answer in answers]

    def deserialize(self, data: bytes) -> dict:
        return msgspec.json.decode(data)

    def serialize(self, data: dict) -> bytes:
        return msgspec.json.encode(data)


if __name__ == "__main__":
    os.environ["FOLDER"], port = sys.argv[1:3]  # which the worker, a process that imports this module, reads
    sys.argv[1:] = ["--port", port, "--address", "127.0.0.1", "--log-level", "warning", "--timeout", "10000"]
    server = Server()
    server.append_worker(Classifier, num=1, max_batch_size=64, max_wait_time=1)
    server.run()

"""The engine behind LitServe, for benchmarks/serving_load.py: `serving_litserve.py FOLDER PORT`."""

from __future__ import annotations

import sys

import litserve
from serving_engine import Engine

FOLDER, PORT = sys.argv[1:3]


class Classifier(litserve.LitAPI):
    """Answers bodies like {"inputs": ["a text"]}."""

    def setup(self, device: str) -> None:
        self._engine = Engine(FOLDER)

    def decode_request(self, request: dict) -> str:
        return request["inputs"][0]

    def batch(self, inputs: list[str]) -> list[str]:
        return inputs

    def predict(self, texts: list[str]) -> list[dict]:
        return self._engine.answer(texts)

    def unbatch(self, output: list[dict]) -> list[dict]:
        return output

    def encode_response(self, output: dict) -> dict:
        return {"results": [{"value": output}]}


if __name__ == "__main__":
    api = Classifier(max_batch_size=64, batch_timeout=0.001, api_path="/predict")
    server = litserve.LitServer(api, accelerator="cpu", devices=1, workers_per_device=1)
    server.run(host="127.0.0.1", port=int(PORT), log_level="error", generate_client_file=False)

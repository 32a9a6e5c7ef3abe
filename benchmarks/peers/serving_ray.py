"""The engine behind Ray Serve, for benchmarks/serving_load.py: `serving_ray.py FOLDER PORT`."""

from __future__ import annotations

import signal
import sys

import ray
from ray import serve
from starlette.requests import Request

FOLDER, PORT = sys.argv[1:3]


@serve.deployment(max_ongoing_requests=1000, ray_actor_options={"num_cpus": 1})
class Classifier:
    """Answers bodies like {"inputs": ["a text"]}."""

    def __init__(self) -> None:
        from serving_engine import Engine

        self._engine = Engine(FOLDER)

    @serve.batch(max_batch_size=64, batch_wait_timeout_s=0.001)
    async def answer(self, texts: list[str]) -> list[dict]:
        return self._engine.answer(texts)

    async def __call__(self, request: Request) -> dict:
        body = await request.json()
        return {"results": [{"value": await self.answer(body["inputs"][0])}]}


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    serve.start(http_options={"host": "127.0.0.1", "port": int(PORT)})
    serve.run(Classifier.bind(), route_prefix="/predict")
    signal.pause()

"""Serve a model on a Ray cluster: each replica is a whole server, with its own dispatcher and engine.

  pip install 'ernie-continual[serving]' 'ray[serve]'
  python examples/ray_serve.py runs/quickstart/finetune_pretrained --replicas 2

Ray's own batching stays off: the dispatcher makes batches.  The routes are those of `ernie serve`.
"""

from __future__ import annotations

import argparse
import signal

from ray import serve
from starlette.applications import Starlette

MANY = 10_000  # requests that Ray hands to a replica at once: the dispatcher refuses what would be late


def application(model: str, replicas: int) -> serve.Application:
    """Return the application for `serve.run`, or for a Ray Serve configuration file."""

    def app() -> Starlette:  # called in each replica
        from serving.app import make_app
        from serving.config import ModelConfig, ServeConfig
        from serving.run import make_service

        return make_app(make_service(ServeConfig(models={"model": ModelConfig(model)})))

    @serve.deployment(num_replicas=replicas, max_ongoing_requests=MANY)
    @serve.ingress(app)
    class Server:
        pass

    return Server.bind()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--port", type=int, default=8000)
    arguments = parser.parse_args()
    serve.start(http_options={"host": "127.0.0.1", "port": arguments.port})
    serve.run(application(arguments.model, arguments.replicas))
    signal.pause()

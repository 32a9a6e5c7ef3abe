"""Run a server: its configuration, its models, and the loop that answers until a signal ends it."""

from __future__ import annotations

import logging
import sys

import uvicorn

from ernie.errors import about
from inference.loading import load
from serving.app import make_app
from serving.config import ModelConfig, ServeConfig
from serving.models import ServedModel, serve_model
from serving.service import Limits, Service

_log = logging.getLogger("ernie.serving")
_SWITCH_SECONDS = 0.0005  # after which Python code of the engine lets the event loop run
_MB = 1_000_000


def load_model(name: str, config: ModelConfig, most_tokens: int) -> ServedModel:
    """Load a model and measure it.  Raises UserError, which names the model."""
    with about(f"models.{name}"):
        face = load(config.path, config.precision, config.trust_plugins, **config.decoding)
        return serve_model(name, config.path, face, most_tokens)


def make_service(config: ServeConfig) -> Service:
    """Return a service with the models of a configuration.  Raises UserError for a model that cannot be loaded."""
    limits = config.limits
    service = Service(
        Limits(
            limits.inputs,
            limits.timeout,
            limits.bulk_timeout,
            limits.longest_timeout,
            int(limits.waiting_mb * _MB),
        ),
        limits.bulk_share,
        config.preparing_threads,
    )
    for name, model in config.models.items():
        service.models[name] = load_model(name, model, limits.batch_tokens)
    return service


def serve(config: ServeConfig) -> int:
    """Serve until a signal ends it; return the exit status."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    sys.setswitchinterval(_SWITCH_SECONDS)
    service = make_service(config)
    server = uvicorn.Server(
        uvicorn.Config(
            make_app(service, int(config.limits.body_mb * _MB)),
            host=config.host,
            port=config.port,
            log_level="warning",
            access_log=False,
            lifespan="on",
            timeout_graceful_shutdown=int(config.drain_seconds),
            ssl_certfile=config.tls_certificate,
            ssl_keyfile=config.tls_key,
        )
    )
    print(f"serving {', '.join(service.models)} at http://{config.host}:{config.port}", file=sys.stderr)
    server.run()
    return 0

"""Serve models over HTTP: give folders of runs or published models, each perhaps as NAME=FOLDER, or a YAML file.

  ernie serve runs/films
  ernie serve runs/films vectors=runs/first --port 8000
  ernie serve serve.yaml --set limits.timeout=0.5

Then, for a model that classifies:

  curl localhost:8000/models/films/predict -d '{"inputs": ["A moving film."]}'

Ctrl-C or SIGTERM lets it answer what waits, and end; a second signal ends it at once.  SIGHUP makes it read its
configuration, its keys and its models again, while requests go on.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ernie.arguments import add_plugin, add_precision, add_set
from ernie.errors import UserError

if TYPE_CHECKING:
    from serving.config import ServeConfig

SUMMARY = "serve models over HTTP"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("models", nargs="+", metavar="MODEL", help="[NAME=]FOLDER of a model, or one YAML file")
    parser.add_argument("--host", help="the address to listen on (default: 127.0.0.1, this machine only)")
    parser.add_argument("--port", type=int, help="the port to listen on (default: 8000)")
    parser.add_argument("--api-key-file", metavar="FILE", help="a file with an API key a line, and whose it is")
    parser.add_argument("--open", action="store_true", help="open the server's page in a browser")
    add_set(parser, "change a key of the configuration")
    add_plugin(parser)
    add_precision(parser)


def main(arguments: argparse.Namespace) -> int:
    """Serve until a signal comes."""
    from ernie.runtime import require_paddle
    from serving.arguments import read_config
    from serving.replica import Replica

    replica = Replica.of_environment()

    def reread() -> ServeConfig:
        config = read_config(arguments)
        return replace(config, replicas=1, port=config.port + replica.index) if replica else config

    config = reread()
    check_installed()
    if config.replicas > 1:
        from serving.supervisor import supervise

        return supervise(config, reread, arguments.words)
    require_paddle()
    from serving.run import serve

    return serve(config, reread, replica, arguments.open and (replica is None or replica.index == 0))


def check_installed() -> None:
    """Raise UserError if a package is missing that only servers need."""
    missing = [
        name
        for name in ("starlette", "uvicorn", "msgspec", "prometheus_client", "python_multipart", "websockets")
        if find_spec(name) is None
    ]
    if missing:
        raise UserError(f"a server needs {', '.join(missing)}: pip install 'ernie-continual[serving]'")

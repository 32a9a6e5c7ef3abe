"""Models for servers under test, whose computing does what an input says, and a server in a thread of the test."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import httpx
import uvicorn
from starlette.types import ASGIApp

from ernie.errors import NotFinite, UserError
from ernie.outcome import Outcome
from inference.face import Face
from inference.operation import Operation, Prepared
from serving.models import ServedModel, serve_model
from serving.service import Service


@dataclass
class Echo(Operation):
    """Returns a text in capitals.  What is in `raises` is raised for a batch that holds the text."""

    raises: Mapping[str, BaseException] = field(default_factory=dict)
    before: Callable[[], object] = lambda: None  # called before each batch
    works: bool = True
    batches: list[list[str]] = field(default_factory=list)

    def prepare(self, given: Any, row: int = 0, **settings: Any) -> Prepared:
        if not isinstance(given, str):
            raise UserError(f"expected text, found {given!r:.60}")
        if given.startswith("panic"):
            raise self.raises[given]
        return Prepared(len(given.split()), given)

    def compute(self, batch: Sequence[Prepared]) -> list[Outcome[str]]:
        self.before()
        texts = [prepared.content for prepared in batch]
        self.batches.append(texts)
        for text in texts:
            if text in self.raises:
                raise self.raises[text]
        return [Outcome(text.upper()) for text in texts]

    @property
    def longest(self) -> int:
        return 100

    def exercise(self, lengths: Sequence[int]) -> None:
        self.before()
        if not self.works:
            raise NotFinite("the outputs are NaN")


class EchoFace(Face):
    """A face with the one operation `echo`."""

    def __init__(self, echo: Echo):
        super().__init__(SimpleNamespace(precision="fp32"))
        self._operations = {"echo": echo}

    @property
    def operations(self) -> Mapping[str, Operation]:
        return self._operations


def echo_model(echo: Echo, name: str = "loud", most_tokens: int = 1000) -> ServedModel:
    """A served model that computes what an Echo does."""
    return serve_model(name, name, EchoFace(echo), most_tokens)


def echo_service(echo: Echo | None = None) -> Service:
    """A service whose only model is an echo."""
    service = Service()
    service.put(echo_model(echo or Echo()))
    return service


@contextmanager
def running(app: ASGIApp, **options: Any) -> Iterator[httpx.Client]:
    """A client of a server that runs in a thread."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, lifespan="on", log_config=None, access_log=False, **options))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=30) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()


def until(holds: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait until a condition holds.  Raises AssertionError if it takes too long."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.005)

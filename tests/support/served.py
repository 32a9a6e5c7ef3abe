"""A server in the test's own process, with tiny models that were never trained."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import uvicorn
from support.toys import TOYS, tiny_encoder
from support.trained import trained

from ernie.model.inference import for_inference
from inference.encoder import LoadedEncoder, TextEncoder
from inference.face import Face
from inference.predictor import Predictor
from inference.recognizer import SpeechRecognizer
from inference.search.index import IndexSettings, make_index
from inference.search.passages import Reading
from inference.search.searching import LoadedIndex, SearchIndex
from inference.speaker import TextSpeaker
from inference.task_model import TaskModel
from inference.translator import TextTranslator
from serving.app import make_app
from serving.connection import Bounds, bounded_connection, bounded_socket
from serving.models import ServedModel, serve_model
from serving.saved_sessions import SessionFolder
from serving.service import Limits, Service
from serving.sessions import SessionLimits, Sessions


@cache
def encoder() -> TextEncoder:
    """A face that makes vectors of texts."""
    ernie = tiny_encoder()
    for_inference(ernie)
    return TextEncoder(LoadedEncoder(ernie, "fp32"))


@cache
def predictor(kind: str) -> Predictor:
    """A face that answers rows of a kind of task, as in its toy."""
    model = TaskModel(tiny_encoder(), TOYS[kind].task)
    model.precision = "fp32"
    for_inference(model)
    return Predictor(model)


def notes(folder: Path, rerank: Path | None = None) -> SearchIndex:
    """An index of a few texts, made in a folder, whose passages a run perhaps ranks again."""
    rows = {"river": "a blue river in winter", "film": "it was a great film", "city": "paris is new"}
    cells = [{"_id": name, "title": name, "text": text, "page": name} for name, text in rows.items()]
    texts = "".join(json.dumps(own) + "\n" for own in cells)
    (folder / "texts.jsonl").write_text(texts, encoding="utf-8")
    encoder().model.ernie.save_pretrained(folder / "model")
    settings = IndexSettings(Reading(keep=("page",)))
    make_index([str(folder / "texts.jsonl")], folder / "index", settings, encoder(), str(folder / "model"))
    return SearchIndex(LoadedIndex.load(folder / "index", precision="fp32", rerank=rerank))


def service_of(faces: Mapping[str, Face], limits: Limits | None = None) -> Service:
    """A service of these models, which has not started yet."""
    service = Service(limits or Limits(timeout=30.0))
    service.models.update({name: serve_model(name, name, face, 1 << 14) for name, face in faces.items()})
    return service


@cache
def streams() -> dict[str, ServedModel]:
    """Models that take streams, and one that takes none; how long their steps take is measured once."""
    faces: dict[str, Face] = {
        "listen": SpeechRecognizer(trained("streaming").model),
        "translate": TextTranslator(trained("translate").model),
        "speak": TextSpeaker(trained("synthesize").model),
        "vectors": encoder(),
    }
    return {name: serve_model(name, name, face, 1 << 14) for name, face in faces.items()}


def service_of_streams(
    chains: Mapping[str, tuple[str, ...]],
    limits: SessionLimits | None = None,
    folder: SessionFolder | None = None,
    **others: Face,
) -> Service:
    """A service of these models, with chains of them; `others` are added to them, or take their places."""
    service = service_of(others)
    service.models = streams() | service.models
    service.sessions = Sessions(service.engine, limits, folder)
    service.chains = dict(chains)
    return service


@contextmanager
def served(service: Service, body_limit: int = 1_000_000, port: int = 0) -> Iterator[str]:
    """Serve a service on a port of this machine, 0 for a free one; gives the server's address."""
    app, bounds = make_app(service, body_limit), Bounds(write_seconds=0.5)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            port=port,
            log_level="warning",
            http=bounded_connection(bounds),
            ws=bounded_socket(bounds),
            ws_per_message_deflate=False,
        )
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()

"""Requests leave nothing behind that only a garbage collection would free, since those keep everyone waiting."""

from __future__ import annotations

import asyncio
import gc
import json
import re
import socket
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support.served import encoder, predictor, served, service_of, service_of_streams
from support.toys import TOYS, tiny_encoder

from inference.task_model import TaskModel
from serving.config import ModelConfig
from serving.garbage import collect_garbage, is_due
from serving.reloading import load_model

TEXTS = {"inputs": ["a b c"]}
TIMES = 20


@contextmanager
def without_collections() -> Iterator[list[object]]:
    """Give a list that afterwards has what a garbage collection would have freed."""
    found: list[object] = []
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield found
        gc.collect()
        found += gc.garbage
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def request(path: str, body: object = None, *headers: str, method: str = "POST") -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = [f"{method} {path} HTTP/1.1", "host: here", f"content-length: {len(content)}", *headers, "", ""]
    return "\r\n".join(head).encode() + content


ASKED = {
    "answered": (200, request("/models/words/predict", TEXTS)),
    "vectors": (200, request("/v1/embeddings", {"model": "vectors", "input": "a b"})),
    "unknown": (404, request("/models/none/predict", TEXTS)),
    "nowhere": (404, request("/nowhere", TEXTS)),
    "method": (405, request("/models/words/predict", TEXTS, method="PUT")),
    "malformed": (400, request("/models/words/predict", b"{")),
    "of its row": (200, request("/models/words/predict", {"inputs": [{"text": 3}]})),
    "invalid": (400, request("/v1/embeddings", {"model": "vectors", "input": [{"text": 3}]})),
    "too late": (429, request("/models/words/predict", TEXTS, "x-timeout: 0.000001")),
    "too large": (413, request("/models/words/predict", {"inputs": ["a"] * 5000})),
    "long": (413, request("/models/words/predict", b" " * 1_100_000)),
    "metrics": (200, request("/metrics", b"", method="GET")),
    "ready": (200, request("/health/ready", b"", method="GET")),
}


def answered(address: str, asked: bytes) -> int:
    """The status of the answer, on a connection of its own."""
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=30) as connection:
        connection.sendall(asked)
        answer = connection.makefile("rb").readline()
    return int(answer.split()[1])


@pytest.mark.parametrize("kind", ASKED)
def test_an_answered_or_refused_request_leaves_no_garbage(kind: str) -> None:
    status, asked = ASKED[kind]
    with served(service_of({"words": predictor("classify"), "vectors": encoder()})) as address:
        for _ in range(3):
            assert answered(address, asked) == status
        with without_collections() as garbage:
            for _ in range(TIMES):
                assert answered(address, asked) == status
        assert len(garbage) < TIMES, Counter(type(each).__name__ for each in garbage).most_common(30)


def session(address: str) -> list[bytes]:
    """The kinds of all messages of a session that translates a line, on a connection of its own."""
    parts = urlsplit(address)
    head = ["GET /models/translate/stream HTTP/1.1", "host: here", "upgrade: websocket", "connection: upgrade"]
    head += ["sec-websocket-version: 13", "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==", "", ""]
    messages = [b'{"type": "start"}', b'{"type": "text", "text": "a b c"}', b'{"type": "end"}']
    with socket.create_connection((parts.hostname or "", parts.port or 0), timeout=30) as connection:
        connection.sendall("\r\n".join(head).encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += connection.recv(1 << 16)
        for message in messages:
            connection.sendall(bytes([0x81, 0x80 | len(message), 0, 0, 0, 0]) + message)
        while b'"done"' not in answer:
            answer += (more := connection.recv(1 << 16))
            assert more, answer
        connection.sendall(bytes([0x88, 0x80, 0, 0, 0, 0]))
        while connection.recv(1 << 16):
            pass
    return re.findall(rb'"type": ?"(\w+)"', answer)


def test_a_session_leaves_no_garbage() -> None:
    with served(service_of_streams({})) as address:
        for _ in range(3):
            assert {b"ready", b"output", b"done"} <= {*session(address)}
        with without_collections() as garbage:
            for _ in range(TIMES):
                session(address)
        assert len(garbage) < TIMES, Counter(type(each).__name__ for each in garbage).most_common(30)


@pytest.mark.parametrize("kind", [*sorted(TOYS), "encoder"])
def test_a_model_that_is_served_no_more_is_freed_without_a_collection(kind: str, tmp_path: Path) -> None:
    if kind == "encoder":
        tiny_encoder().save_pretrained(tmp_path / "model")
    else:
        TaskModel(tiny_encoder(), TOYS[kind].task).save(tmp_path / "model")
    served = load_model("model", ModelConfig(str(tmp_path / "model")), 1 << 14)
    if "predict" in served.face.operations:
        served.face.operations["predict"].prepare(TOYS[kind].rows(1)[0])
    ernie = served.face.model.ernie
    weights = [weakref.ref(ernie), weakref.ref(ernie.tokenizer), *map(weakref.ref, ernie.parameters())]
    gc.disable()
    try:
        del served, ernie
        assert not any(each() is not None for each in weights)
    finally:
        gc.enable()


class Cycle:
    """Something that only a collection frees."""

    def __init__(self) -> None:
        self.itself = self


def test_old_garbage_is_collected_while_nobody_waits() -> None:
    async def collected() -> None:
        task = asyncio.ensure_future(collect_garbage(lambda: True))
        await asyncio.sleep(0)
        grown_old = [Cycle() for _ in range(30_000)]
        last = weakref.ref(grown_old[-1])
        for _ in range(1100):
            gc.collect(0)
        del grown_old
        while last() is not None:
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    thresholds = gc.get_threshold()
    asyncio.run(asyncio.wait_for(collected(), 60))
    assert gc.get_threshold() == thresholds


@pytest.mark.parametrize(
    ("collections", "is_idle", "due"),
    [(30, True, False), (2000, True, True), (2000, False, False), (30_000, False, True)],
)
def test_whoever_waits_for_an_answer_waits_for_no_collection_of_everything(
    collections: int, is_idle: bool, due: bool
) -> None:
    assert is_due(collections, lambda: is_idle) is due

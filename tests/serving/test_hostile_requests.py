"""Hostile requests in every protocol at once: each is answered, and harms no other."""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import struct
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.served import encoder, served, service_of
from support.sessions import sound
from support.trained import trained

from inference.recognizer import SpeechRecognizer
from serving.service import Limits

LIMIT = 10_000_000
LONG = "word " * 1_900_000
# By path: a good request, and the same with another text.
GOOD: dict[str, Any] = {
    "/models/vectors/encode": lambda text: {"inputs": [text]},
    "/v1/embeddings": lambda text: {"model": "vectors", "input": text, "truncate": True},
    "/embed": lambda text: {"inputs": text},
    "/tei/vectors/similarity": lambda text: {"inputs": {"source_sentence": "blue", "sentences": [text]}},
    "/v2/models/vectors/infer": lambda text: {
        "inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": [text]}]
    },
}
TEXT = "a blue film"


def hostile(good: bytes, rng: random.Random) -> tuple[bytes, dict[str, str]]:
    """A request of which nothing good can come."""
    cut = rng.randrange(1, len(good))
    flipped = bytes([*good[:cut], good[cut] ^ 0xFF, *good[cut + 1 :]])
    bodies = [
        b"",
        good[:cut],
        flipped,
        good[:cut] + b"NaN" + good[cut:],
        good.replace(TEXT.encode(), b"\\ud800"),
        b"[" * 100_000,
        b'{"inputs":' * 1000,
        b"null",
        b"-0",
        b'{"inputs": [' + b"1," * 600_000 + b"1]}",
        b" " * (LIMIT + 1),
        struct.pack("<I", 2**32 - 1) * 100,
    ]
    headers = [
        {},
        {"content-encoding": "gzip"},
        {"content-encoding": "br"},
        {"content-type": "multipart/form-data; boundary=x"},
        {"inference-header-content-length": str(rng.choice([-1, 0, 3, 10**30]))},
        {"x-timeout": rng.choice(["nan", "-1", "", "1e999"]), "x-priority": "first"},
    ]
    body = rng.choice(bodies)
    chosen = rng.choice(headers)
    return (gzip.compress(body) if rng.random() < 0.2 and "content-encoding" in chosen else body), chosen


def test_good_requests_among_hostile_ones_have_the_answers_that_they_have_alone() -> None:
    rng = random.Random(0)

    async def check(address: str) -> None:
        async with httpx.AsyncClient(base_url=address, timeout=120.0) as client:
            alone = {path: await answer(client, path) for path in GOOD}

            async def good(path: str) -> None:
                assert await answer(client, path) == alone[path]

            async def bad(path: str) -> None:
                body, headers = hostile(json.dumps(GOOD[path](TEXT)).encode(), rng)
                reply = await client.post(path, content=body, headers=headers)
                assert 400 <= reply.status_code < 500 or (reply.status_code == 200 and alone[path] is not None)
                assert reply.status_code == 200 or "error" in reply.json()

            for _ in range(6):
                await asyncio.gather(*(work(path) for path in GOOD for work in (good, bad, bad, bad)))

    with served(service_of({"vectors": encoder()}, Limits(timeout=60.0)), LIMIT) as address:
        asyncio.run(check(address))


async def answer(client: httpx.AsyncClient, path: str, text: str = TEXT) -> Any:
    """The answer to a good request, without what names the request."""
    reply = await client.post(path, json=GOOD[path](text))
    assert reply.status_code == 200, reply.text
    return reply.json()


@pytest.mark.parametrize("path", GOOD)
def test_a_text_of_ten_megabytes_is_cut_like_any_other(path: str) -> None:
    shorter = LONG[: 5 * 1000]

    async def check(address: str) -> None:
        async with httpx.AsyncClient(base_url=address, timeout=120.0) as client:
            whole = await answer(client, path, LONG)
            assert whole == await answer(client, path, shorter)

    with served(service_of({"vectors": encoder()}, Limits(timeout=60.0)), LIMIT) as address:
        asyncio.run(check(address))


def test_no_client_reads_a_file_of_the_server(tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    said = sound(("blue", "red", "green"))
    soundfile.write(tmp_path / "said.wav", said, 8000)
    (tmp_path / "words.txt").write_text("red\n")
    name = str(tmp_path / "said.wav")
    service = service_of({"listen": SpeechRecognizer(trained("streaming").model)})
    with served(service) as address, httpx.Client(base_url=address, timeout=60) as client:

        def error(inputs: Any, **settings: Any) -> str:
            reply = client.post("/models/listen/predict", json={"inputs": [inputs], "settings": settings}).json()
            found = reply.get("error") or reply["results"][0].get("error") or {"message": ""}
            return str(found["message"])

        itself = {"audio": {"array": said.tolist(), "sampling_rate": 8000, "path": name}}
        assert error(itself) == ""
        for row in (name, {"audio": name}, {"audio": {"path": name}}, {"audio": {"path": name, "bytes": None}}):
            assert error(row) == "row 0: it names a file, which is not read; expected what the file contains"
        for setting in ("hot_words", "language_model"):
            assert "is unknown here" in error(itself, beam=4, **{setting: str(tmp_path / "words.txt")})
        column = {"name": "audio", "shape": [1], "datatype": "BYTES", "data": [name]}
        assert "it names a file" in client.post("/v2/models/listen/infer", json={"inputs": [column]}).json()["error"]

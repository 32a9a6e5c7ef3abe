"""The library's own protocol for single requests, over real connections."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from support.served import encoder, predictor, served, service_of

from inference.face import Face
from serving.cost import CostModel
from serving.service import Limits

LIMIT = 1_000_000  # bytes of a body


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    faces: dict[str, Face] = {"vectors": encoder(), "films": predictor("classify")}
    service = service_of(faces, Limits(inputs=20, timeout=30.0))
    with served(service, LIMIT) as address, httpx.Client(base_url=address, timeout=60.0) as client:
        yield client


def ask(client: httpx.Client, path: str, inputs: list[Any], **more: Any) -> list[dict[str, Any]]:
    reply = client.post(path, json={"inputs": inputs, **more})
    assert reply.status_code == 200, reply.text
    results: list[dict[str, Any]] = reply.json()["results"]
    return results


def problem(reply: httpx.Response) -> tuple[int, str, str]:
    error = reply.json()["error"]
    return reply.status_code, error["kind"], error["message"]


def test_models_are_listed_with_what_they_are_asked_for(client: httpx.Client) -> None:
    found = {model["name"]: model for model in client.get("/models").json()["models"]}
    settings = ["all_labels", "raw_scores", "temperature", "threshold", "windows"]
    assert found["films"]["operations"] == {"predict": {"settings": settings}}
    assert found["vectors"]["face"] == "encode"
    operations = found["vectors"]["operations"]
    assert operations["encode_tokens"] == {"settings": ["max_len", "prompt", "prompt_name"]}
    assert "pooling" in operations["encode"]["settings"]


def test_values_are_those_of_the_loaded_model(client: httpx.Client) -> None:
    texts = ["it was blue", "a red film", ""]
    (film,) = ask(client, "/models/films/predict", ["it was blue"])
    assert film["value"] == next(predictor("classify").predict("it was blue"))
    vectors = [result["value"] for result in ask(client, "/models/vectors/encode", texts)]
    assert np.allclose(vectors, encoder().encode(texts), atol=1e-6)
    tokens = [result["value"] for result in ask(client, "/models/vectors/encode_tokens", texts)]
    for found, expected in zip(tokens, encoder().encode_tokens(texts), strict=True):
        assert np.allclose(found, expected, atol=1e-6)


def test_a_setting_changes_one_request(client: httpx.Client) -> None:
    (all_labels,) = ask(client, "/models/films/predict", ["blue"], settings={"all_labels": True})
    (usual,) = ask(client, "/models/films/predict", ["blue"])
    assert all_labels["value"].keys() - usual["value"].keys() == {"all_labels"}


def test_token_ids_of_a_text_give_its_vector(client: httpx.Client) -> None:
    ids = encoder().tokenizer.encode("a blue film").ids.tolist()
    first, second = ask(client, "/models/vectors/encode", ["a blue film", ids])
    assert first == second


def test_a_long_input_is_cut_with_a_note_or_refused_as_asked(client: httpx.Client) -> None:
    long = "blue " * 100
    (cut,) = ask(client, "/models/films/predict", [long])
    assert cut["notes"] == ["row 0: is longer than max_len 16 and was truncated"]
    short, refused = ask(client, "/models/films/predict", ["blue", long], truncate=False)
    assert "value" in short
    assert refused["error"] == {
        "kind": "too_long",
        "message": "input 1: it is too long, and the model would read 16 tokens of it",
    }


def test_a_faulty_input_harms_no_other(client: httpx.Client) -> None:
    given = ["blue", 3, ["a", "b"], {"text": "blue"}, [99_999], [[["x"]]]]
    results = ask(client, "/models/vectors/encode", given)
    assert ["value" in result for result in results] == [True, False, True, False, False, False]
    assert results[4]["error"]["message"].startswith("text 4: 99999 is no token id: the vocabulary has ")
    results = ask(client, "/models/films/predict", given)
    assert ["value" in result for result in results] == [True, False, False, True, False, False]
    assert results[1]["error"]["message"] == "row 1: expected its cells by column, such as {'text': ...}, found 3"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pooling": {}}, "pooling: expected a text or a list, found {}"),
        ({"pooling": ["odd"]}, "pooling: expected one of cls, max"),
        ({"prompt": 5}, "prompt: expected a text, found 5"),
        ({"max_len": 10**9}, "max_len: expected at most the model's 64 positions"),
    ],
)
def test_a_setting_of_the_wrong_kind_is_named(client: httpx.Client, settings: dict[str, Any], message: str) -> None:
    (result,) = ask(client, "/models/vectors/encode", ["blue"], settings=settings)
    assert result["error"]["kind"] == "invalid"
    assert result["error"]["message"].startswith(message)


GOOD = json.dumps({"inputs": ["blue"]}).encode()


@pytest.mark.parametrize(
    ("body", "headers", "status", "kind", "sentence"),
    [
        (b"", {}, 400, "malformed", "the body is empty; expected JSON"),
        (b'{"inputs": ["a"', {}, 400, "malformed", "the body is no JSON"),
        (b'{"inputs": [NaN]}', {}, 400, "malformed", "the body is no JSON"),
        (b'{"inputs": [1e400]}', {}, 422, "invalid", "the request: Number out of range"),
        (b'{"inputs": ["\\ud800"]}', {}, 400, "malformed", "the body is no JSON"),
        (b'{"inputs": ["\xff"]}', {}, 400, "malformed", "the body is no JSON"),
        (b'{"inputs": [' + b"[" * 100_000, {}, 400, "malformed", "the body: its JSON is nested too deeply"),
        (b'{"inputs": "blue"}', {}, 422, "invalid", "the request: Expected `array`, got `str` - at `$.inputs`"),
        (b'{"input": ["blue"]}', {}, 422, "invalid", "the request: Object "),
        (b'["blue"]', {}, 422, "invalid", "the request: Expected `object`, got `array`"),
        (b'{"inputs": ["a"], "timeout": -1}', {}, 422, "invalid", "timeout: expected seconds above 0, found -1"),
        (b'{"inputs": ["a"], "settings": {"odd": 1}}', {}, 422, "invalid", "settings: odd is unknown here"),
        (GOOD, {"x-timeout": "soon"}, 422, "invalid", "x-timeout: expected seconds above 0, found soon"),
        (GOOD, {"x-priority": "first"}, 422, "invalid", "x-priority: expected interactive or bulk, found 'first'"),
        (b"--x", {"content-type": "multipart/form-data"}, 415, "malformed", "the body: expected JSON, with the cont"),
        (GOOD, {"content-encoding": "br"}, 415, "malformed", "the body: expected the content encoding gzip or defl"),
        (GOOD, {"content-encoding": "gzip"}, 400, "malformed", "the body cannot be decompressed: "),
        (
            gzip.compress(GOOD, mtime=0)[:-9],
            {"content-encoding": "gzip"},
            400,
            "malformed",
            "the body cannot be decompressed",
        ),
        (
            gzip.compress(b" " * (LIMIT + 1), mtime=0),
            {"content-encoding": "gzip"},
            413,
            "too_large",
            "the body: expected at",
        ),
        (b'{"inputs": [[' + b"," * 500_000, {}, 413, "too_large", "the body: expected at most 500,000 values"),
        (b'{"inputs": [[' + b"{" * 500_000, {}, 413, "too_large", "the body: expected at most 500,000 values"),
        (b" " * (LIMIT + 1), {}, 413, "too_large", "the body: expected at most 1,000,000 bytes"),
        (json.dumps({"inputs": ["a"] * 21}).encode(), {}, 413, "too_large", "expected at most 20 inputs at once"),
    ],
)
def test_a_bad_request_is_answered_by_a_status_and_a_sentence(
    client: httpx.Client, body: bytes, headers: dict[str, str], status: int, kind: str, sentence: str
) -> None:
    for path in ("/models/vectors/encode", "/models/films/predict"):
        reply = client.post(path, content=body, headers=headers)
        assert problem(reply)[:2] == (status, kind), reply.text
        assert problem(reply)[2].startswith(sentence)
    assert "value" in ask(client, "/models/films/predict", ["blue"])[0]


@pytest.mark.parametrize(
    ("method", "path", "status", "sentence"),
    [
        ("POST", "/models/film/predict", 404, "there is no model 'film' here. Did you mean 'films'?"),
        ("POST", "/models/films/encode", 404, "the model 'films' has no operation 'encode'. Known: predict."),
        ("GET", "/models/films/predict", 405, "/models/films/predict: expected the method POST, found GET"),
        ("DELETE", "/models", 405, "/models: expected the method GET, found DELETE"),
        ("GET", "/nowhere", 404, "there is nothing at /nowhere; /docs shows what there is"),
        ("GET", "/models/films/stream", 426, "sessions are WebSockets: connect to ws://HOST:PORT/models/films/stream"),
        ("POST", "/models/", 404, "there is nothing at /models/; /docs shows what there is"),
    ],
)
def test_a_wrong_address_or_method_is_explained(
    client: httpx.Client, method: str, path: str, status: int, sentence: str
) -> None:
    reply = client.request(method, path, content=GOOD if method == "POST" else None)
    assert problem(reply)[::2] == (status, sentence)
    assert ("allow" in reply.headers) == (status == 405)


def test_a_compressed_request_is_read(client: httpx.Client) -> None:
    reply = client.post("/models/films/predict", content=gzip.compress(GOOD), headers={"content-encoding": "gzip"})
    assert reply.json()["results"] == ask(client, "/models/films/predict", ["blue"])


def test_deeply_nested_inputs_are_faulty_inputs(client: httpx.Client) -> None:
    nested = json.loads("[" * 400 + "]" * 400)
    for path in ("/models/vectors/encode", "/models/films/predict"):
        reply = client.post(path, content=json.dumps({"inputs": [nested, "blue"]}))
        first, second = reply.json()["results"]
        assert first["error"]["kind"] == "invalid" and "value" in second


def test_a_client_that_leaves_in_the_middle_of_its_request_harms_no_other(client: httpx.Client) -> None:
    host, port = client.base_url.host, client.base_url.port
    head = b"POST /models/films/predict HTTP/1.1\r\nhost: a\r\ncontent-length: 99\r\n\r\n"
    for sent in (b"", head[:20], head + b"{"):
        with socket.create_connection((host, port)) as connection:
            connection.sendall(sent)
    assert "value" in ask(client, "/models/films/predict", ["blue"])[0]


def test_a_request_has_an_id_that_its_reply_repeats(client: httpx.Client) -> None:
    assert client.get("/models", headers={"x-request-id": "mine"}).headers["x-request-id"] == "mine"
    assert len({client.get("/models").headers["x-request-id"] for _ in range(3)}) == 3


def test_a_long_request_of_a_client_that_states_no_wishes_counts_as_bulk() -> None:
    service = service_of({"vectors": encoder()}, Limits(timeout=1.0, bulk_timeout=600.0))
    work = service.models["vectors"].work["encode"]
    work.cost = CostModel([(1, 10.0), (100, 20.0)])  # seconds, by an estimate
    with served(service) as address, httpx.Client(base_url=address, timeout=60.0) as client:
        for headers in ({"x-priority": "interactive"}, {"x-timeout": "1"}):
            reply = client.post("/models/vectors/encode", json={"inputs": ["blue"]}, headers=headers)
            assert problem(reply)[:2] == (413, "too_large")
        assert "value" in ask(client, "/models/vectors/encode", ["blue"])[0]

"""The API's description: complete, valid, and a page that anyone can read without the internet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import httpx
import pytest
from openapi_spec_validator import validate
from support.served import encoder, predictor, served, service_of

from serving.app import PROTOCOLS
from serving.service import Service


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    service = service_of({"vectors": encoder(), "films": predictor("classify")})
    with served(service) as address, httpx.Client(base_url=address, timeout=60.0) as client:
        yield client


@pytest.fixture(scope="module")
def document(client: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/openapi.json").json()
    return found


def test_the_description_is_valid(document: dict[str, Any]) -> None:
    validate(document)
    assert document["openapi"] == "3.1.0"


def test_every_route_of_every_protocol_is_described(document: dict[str, Any]) -> None:
    described = {(method.upper(), path) for path, by_method in document["paths"].items() for method in by_method}
    wanted = {(route.method, route.path) for protocol in PROTOCOLS for route in protocol.routes(Service())}
    operating = {("GET", path) for path in ("/health/live", "/health/ready", "/metrics", "/openapi.json", "/docs")}
    assert described >= wanted | operating
    for by_method in document["paths"].values():
        for operation in by_method.values():
            assert re.fullmatch(r"[A-Z].*\.", operation["summary"])


# Which read no body, ask for the only model where there are two, or for what this model lacks.
OTHERS = {"/v2/repository/index", "/info", "/"}
OTHERS |= {f"/models/{{model}}/{name}" for name in ("card", "report", "examples/{number}")}


def test_every_described_route_answers(document: dict[str, Any], client: httpx.Client) -> None:
    values = {"model": "films", "operation": "predict", "version": "1", "file": "app.js", "number": "0"}
    for path, by_method in document["paths"].items():
        if path.startswith("/simuleval"):  # only for models that take streams
            continue
        for method in by_method:
            reply = client.request(method.upper(), path.format_map(values), content=b"{" if method == "post" else None)
            assert reply.status_code == (400 if method == "post" else 200) or path in OTHERS, (method, path)


def test_requests_with_only_the_required_fields_of_the_description_are_understood(
    document: dict[str, Any], client: httpx.Client
) -> None:
    def example(schema: dict[str, Any]) -> Any:
        if "$ref" in schema:
            of = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
            return {name: example(of["properties"][name]) for name in of["required"]}
        if "anyOf" in schema:
            return example(schema["anyOf"][0])
        return {"string": "a", "array": ["a"], "object": {}}[schema["type"]]

    for path in ("/tokenize", "/embed", "/models/films/predict", "/similarity"):
        body = document["paths"].get(path, document["paths"]["/models/{model}/{operation}"])["post"]["requestBody"]
        reply = client.post(path, json=example(body["content"]["application/json"]["schema"]))
        assert reply.status_code == 200, (path, reply.text)


class Reader(HTMLParser):
    """Notes what a page links to and fetches."""

    def __init__(self) -> None:
        super().__init__()
        self.ids, self.links, self.fetched = set[str](), set[str](), list[str]()

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        found = dict(attributes)
        self.ids.add(found.get("id") or "")
        if tag == "a":
            self.links.add(found["href"] or "")
        elif found.keys() & {"src", "href"} or tag == "script":
            self.fetched.append(tag)


def test_the_root_is_a_page_and_a_route_of_another_protocol(client: httpx.Client) -> None:
    assert client.get("/").headers["content-type"] == "text/html; charset=utf-8"
    assert client.post("/", content=b"{").json()["error_type"] == "Validation"  # of another protocol


def test_the_description_says_where_sessions_are(document: dict[str, Any], client: httpx.Client) -> None:
    for text in (document["info"]["description"], client.get("/docs").text):
        assert "ws://HOST:PORT/models/{model}/stream" in text


def test_the_page_shows_every_route_and_fetches_nothing(document: dict[str, Any], client: httpx.Client) -> None:
    reply = client.get("/docs")
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in reply.headers["content-security-policy"]
    reader = Reader()
    reader.feed(reply.text)
    assert reader.fetched == []
    assert {link[1:] for link in reader.links if link.startswith("#")} <= reader.ids
    assert '<html lang="en">' in reply.text
    for path in document["paths"]:
        assert f" {path}</code>" in reply.text

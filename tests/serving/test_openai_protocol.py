"""OpenAI's protocol, with OpenAI's own client."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from support.served import encoder, predictor, served, service_of

from ernie.outcome import Outcome
from inference.face import Face
from inference.operation import Operation, Prepared
from serving.http import Problem
from serving.protocols.openai import problem
from serving.protocols.shared import shortened
from serving.service import Limits, Observer

TEXTS = ["a blue film", "the red one", "it was very great"]


@pytest.fixture(scope="module")
def client() -> Iterator[openai.OpenAI]:
    service = service_of({"vectors": encoder(), "films": predictor("classify")}, Limits(inputs=20, timeout=30.0))
    with served(service) as address, openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        yield client


def vectors(reply: Any) -> np.ndarray:
    assert [item.index for item in reply.data] == list(range(len(reply.data)))
    return np.array([item.embedding for item in reply.data], np.float32)


def test_vectors_are_those_of_the_model_in_each_encoding(client: openai.OpenAI) -> None:
    expected = encoder().encode(TEXTS)
    usual = client.embeddings.create(model="vectors", input=TEXTS)
    numbers = client.embeddings.create(model="vectors", input=TEXTS, encoding_format="float")
    assert np.allclose(vectors(usual), expected, atol=1e-6)
    assert (vectors(usual) == vectors(numbers)).all()
    assert usual.model == "vectors" and usual.object == "list" and usual.data[0].object == "embedding"


def test_usage_counts_the_tokens_that_were_computed(client: openai.OpenAI) -> None:
    usage = client.embeddings.create(model="vectors", input=TEXTS, user="someone").usage
    assert usage.prompt_tokens == usage.total_tokens == sum(len(text.split()) + 2 for text in TEXTS)


def test_one_text_and_token_ids_are_inputs_too(client: openai.OpenAI) -> None:
    tokens = [encoder().tokenizer.encode(text).ids.tolist() for text in TEXTS]
    expected = vectors(client.embeddings.create(model="vectors", input=TEXTS))
    assert (vectors(client.embeddings.create(model="vectors", input=TEXTS[0])) == expected[:1]).all()
    assert (vectors(client.embeddings.create(model="vectors", input=tokens[0])) == expected[:1]).all()
    assert (vectors(client.embeddings.create(model="vectors", input=tokens)) == expected).all()


def test_dimensions_keep_the_beginning_of_a_vector(client: openai.OpenAI) -> None:
    whole = vectors(client.embeddings.create(model="vectors", input=TEXTS))
    assert (vectors(client.embeddings.create(model="vectors", input=TEXTS, dimensions=5)) == whole[:, :5]).all()
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model="vectors", input=TEXTS, dimensions=33)
    assert caught.value.param == "dimensions"


def test_what_is_left_of_a_vector_of_length_1_has_length_1() -> None:
    unit = np.array([0.6, 0.0, 0.8], np.float32)
    assert shortened(unit, 2).tolist() == [1, 0]
    assert shortened(unit, 3).tolist() == unit.tolist()
    assert shortened(np.array([0, 0, 1], np.float32), 2).tolist() == [0, 0]


def test_a_large_answer_is_complete(client: openai.OpenAI) -> None:
    many = vectors(client.embeddings.create(model="vectors", input=TEXTS * 6, encoding_format="float"))
    assert (many == np.tile(many[:3], (6, 1))).all()


def test_models_are_listed_and_shown(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == ["vectors", "films"]
    assert client.models.retrieve("films").owned_by == "ernie"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("none")


def test_a_route_that_is_not_offered_is_not_a_missing_model(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="there is nothing at /v1/chat/completions") as caught:
        client.chat.completions.create(model="vectors", messages=[])
    assert (caught.value.param, caught.value.code) == (None, None)


@pytest.mark.parametrize(
    ("given", "kind", "parameter", "code", "sentence"),
    [
        ({"model": "vector"}, openai.NotFoundError, "model", "model_not_found", "there is no model 'vector' here."),
        ({"model": "films"}, openai.NotFoundError, "model", "model_not_found", "the model 'films' has no operation"),
        ({"input": []}, openai.BadRequestError, "input", None, "input: expected at least one text, found an empty"),
        ({"input": ["a", ""]}, openai.BadRequestError, "input", None, "input: expected texts or lists of token ids"),
        ({"input": ["a", 3]}, openai.BadRequestError, "input", None, "input: expected texts or lists of token ids"),
        ({"input": [99_999]}, openai.BadRequestError, None, None, "text 0: 99999 is no token id"),
        ({"input": 3}, openai.BadRequestError, "input", None, "the request: Expected `str | array`, got `int`"),
        ({"encoding_format": "odd"}, openai.BadRequestError, "encoding_format", None, "the request: Invalid enum"),
        ({"input": "blue " * 99}, openai.BadRequestError, None, "context_length_exceeded", "input 0: it is too long"),
        ({"input": ["a"] * 21}, openai.APIStatusError, None, None, "expected at most 20 inputs at once, found 21"),
    ],
)
def test_a_faulty_request_raises_the_error_of_the_client(
    client: openai.OpenAI,
    given: dict[str, Any],
    kind: type[openai.APIStatusError],
    parameter: str | None,
    code: str | None,
    sentence: str,
) -> None:
    with pytest.raises(kind) as caught:
        client.embeddings.create(**{"model": "vectors", "input": "blue", **given})
    assert (caught.value.param, caught.value.code) == (parameter, code)
    assert caught.value.body["message"].startswith(sentence)  # type: ignore[index]


def test_a_long_text_is_cut_if_the_client_asks_for_it(client: openai.OpenAI) -> None:
    cut = client.embeddings.create(model="vectors", input="blue " * 99, extra_body={"truncate": True})
    assert cut.usage.prompt_tokens == 64


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "embeddings", b"{", 400),
        ("POST", "embeddings", b'{"model": "vectors"}', 400),
        ("POST", "embeddings", b'{"model": "vectors", "input": [NaN]}', 400),
        ("POST", "embeddings", b'{"model": "vectors", "input": ' + b"[" * 100_000, 400),
        ("POST", "embeddings", b'{"model": "vectors", "input": "\\ud800"}', 400),
        ("POST", "embeddings", b" " * 1_000_001, 413),
        ("GET", "embeddings", b"", 405),
        ("GET", "chat/completions", b"", 404),
    ],
)
def test_other_bad_requests_have_the_same_form(
    client: openai.OpenAI, method: str, path: str, body: bytes, status: int
) -> None:
    reply = httpx.request(method, str(client.base_url) + path, content=body)
    assert reply.status_code == status
    assert reply.json()["error"].keys() == {"message", "type", "param", "code"}
    assert reply.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("found", "status", "kind", "retried"),
    [
        (Problem(503, "leaving", "this server is ending"), 503, "server_error", True),
        (Problem(504, "expired", "its timeout was over"), 504, "server_error", True),
        (Problem(424, "model_failed", "the vector is not finite"), 500, "server_error", False),
        (Problem(401, "unauthorized", "this key is unknown here"), 401, "authentication_error", True),
        (Problem(422, "invalid", "input: expected another"), 400, "invalid_request_error", True),
    ],
)
def test_a_problem_has_the_status_that_makes_the_client_do_what_helps(
    found: Problem, status: int, kind: str, retried: bool
) -> None:
    reply = problem(found)
    assert reply.status == status and json.loads(reply.body)["error"]["type"] == kind
    assert dict(reply.headers).get(b"x-should-retry") == (None if retried else b"false")


class Held(Operation):
    """Waits while it prepares the text "wait", until `go` is set; computes nothing."""

    def __init__(self) -> None:
        self.begun, self.go = threading.Event(), threading.Event()

    @property
    def longest(self) -> int:
        return 8

    def prepare(self, given: Any, row: int = 0, **settings: Any) -> Prepared:
        if given == "wait":
            self.begun.set()
            assert self.go.wait(60)
        return Prepared(1, None)

    def compute(self, batch: Sequence[Prepared]) -> list[Outcome[Any]]:
        return [Outcome(np.ones(2, np.float32))] * len(batch)

    def exercise(self, lengths: Sequence[int]) -> None:
        pass


class HeldFace(Face):
    """What is asked to encode, with one operation."""

    name, precision = "held", "fp32"  # type: ignore[assignment]

    @property
    def operations(self) -> Mapping[str, Operation]:
        return {"encode": self.model}


class Refusals(Observer):
    """Lets the held request go on when another one is refused."""

    def __init__(self, held: Held) -> None:
        self.held, self.count = held, 0

    def refused(self, work: str, reason: str) -> None:
        self.count += 1
        self.held.go.set()


def test_a_refused_request_is_sent_again_when_the_server_says_so() -> None:
    held = Held()
    refusals = Refusals(held)
    service = service_of({"held": HeldFace(held)}, Limits(timeout=60.0, waiting_characters=100))
    service.observers.append(refusals)
    with served(service) as address, openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=3) as client:
        first = threading.Thread(target=client.embeddings.create, kwargs={"model": "held", "input": "wait"})
        first.start()
        assert held.begun.wait(60)
        answer = client.embeddings.create(model="held", input="word " * 20)
        first.join()
    assert refusals.count == 1
    assert answer.data[0].embedding == [1.0, 1.0]


def test_an_overloaded_server_says_when_to_ask_again() -> None:
    held = Held()
    service = service_of({"held": HeldFace(held)}, Limits(timeout=60.0, waiting_characters=100))
    with served(service) as address, openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client:
        first = threading.Thread(target=client.embeddings.create, kwargs={"model": "held", "input": "wait"})
        first.start()
        assert held.begun.wait(60)
        with pytest.raises(openai.RateLimitError) as caught:
            client.embeddings.create(model="held", input="word " * 20)
        held.go.set()
        first.join()
    assert caught.value.response.headers["retry-after"] == "1"
    assert caught.value.response.headers["retry-after-ms"] == "1000"
    assert caught.value.code == "rate_limit_exceeded"

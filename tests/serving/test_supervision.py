"""The engine survives whatever models do, and the server says whether it computes."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import httpx
import pytest
from support.echoing import Echo, echo_model, echo_service, running, until

from ernie.errors import UserError
from inference.operation import Prepared
from serving.app import make_app
from serving.service import Service

RAISES = {
    "error": RuntimeError("a fault of the model"),
    "exit": SystemExit(3),
    "interrupt": KeyboardInterrupt(),
    "memory": MemoryError(),
    "user": UserError("this text is not allowed"),
    "panic": BaseException("a fault of the tokenizer"),
}


class Server:
    """A server with one model, whose batches wait while `closed`."""

    def __init__(self, service: Service, echo: Echo, client: httpx.Client):
        self.service, self.echo, self.client = service, echo, client

    def ask(self, *texts: object, **more: object) -> httpx.Response:
        return self.client.post("/models/loud/echo", json={"inputs": texts, "timeout": 20, **more})


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    echo = Echo(RAISES)
    service = echo_service(echo)
    with running(make_app(service)) as client:
        yield Server(service, echo, client)


@pytest.fixture
def held(server: Server) -> Iterator[threading.Event]:
    """Batches wait until the event is set."""
    event = threading.Event()
    server.echo.before = event.wait
    yield event
    event.set()
    server.echo.before = lambda: None


@pytest.mark.parametrize("culprit", [word for word in RAISES if word != "user"])
def test_only_the_culprit_of_a_failing_batch_has_an_error(server: Server, culprit: str) -> None:
    answer = server.ask("a", "b", "c", culprit, "d", "e", "f")
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [result.get("value") for result in results] == ["A", "B", "C", None, "D", "E", "F"]
    kind = type(RAISES[culprit]).__name__
    assert results[3] == {"error": {"kind": "model_failed", "message": f"the model failed on this input: {kind}"}}
    assert server.ask("afterwards").json()["results"] == [{"value": "AFTERWARDS"}]
    assert server.service.engine.is_alive


def test_what_a_user_can_mend_is_said_in_the_models_words(server: Server) -> None:
    results = server.ask("fine", "user", 3).json()["results"]
    assert results[1] == {"error": {"kind": "invalid", "message": "this text is not allowed"}}
    assert results[2] == {"error": {"kind": "invalid", "message": "expected text, found 3"}}


def test_the_batch_of_one_client_fails_and_that_of_another_does_not(server: Server, held: threading.Event) -> None:
    answers: dict[str, httpx.Response] = {}
    server.echo.batches.clear()

    def ask(text: str) -> None:
        answers[text] = server.ask(text)

    threads = [threading.Thread(target=ask, args=(text,)) for text in ("first", "exit", "good", "better")]
    for thread in threads:
        thread.start()
        if thread is threads[0]:
            until(lambda: not server.service.engine.waiting[0] and server.service.waiting == 1)
    until(lambda: server.service.engine.waiting[0] == 3)
    held.set()
    for thread in threads:
        thread.join()
    assert sorted(server.echo.batches[1]) == ["better", "exit", "good"]
    assert answers["good"].json()["results"] == [{"value": "GOOD"}]
    assert "error" in answers["exit"].json()["results"][0]


def test_a_server_is_live_and_not_ready_while_its_engine_is_stuck(server: Server, held: threading.Event) -> None:
    found: list[httpx.Response] = []
    time.sleep(1.1)  # until the last answer is too old
    asking = threading.Thread(target=lambda: found.append(httpx.get(server.client.base_url.join("/health/ready"))))
    asking.start()
    for _ in range(20):
        assert server.client.get("/health/live").json() == {"live": True}
    assert not found
    held.set()
    asking.join()
    assert found[0].status_code == 200


def test_an_engine_that_does_not_move_for_long_is_not_ready_at_once(
    server: Server, held: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("serving.engine._STUCK", 0.3)
    thread = threading.Thread(target=server.ask, args=("a",))
    thread.start()
    until(lambda: not server.service.engine.is_alive)
    answer = server.client.get("/health/ready")
    assert (answer.status_code, answer.json()) == (503, {"ready": False, "models": {"loud": False}})
    assert "ernie_engine_alive 0.0" in server.client.get("/metrics").text
    held.set()
    thread.join()
    until(lambda: server.client.get("/health/ready").status_code == 200)


def test_it_is_ready_under_load(server: Server) -> None:
    stop = threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=server.client.base_url) as client:
            while not stop.is_set():
                client.post("/models/loud/echo", json={"inputs": ["a b c"] * 50})

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(3):
            assert server.client.get("/health/ready").status_code == 200
            time.sleep(0.4)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_model_whose_outputs_are_not_finite_makes_the_server_not_ready() -> None:
    broken = Echo()
    service = echo_service()
    service.put(echo_model(broken, "broken"))
    broken.works = False
    with running(make_app(service)) as client:
        answer = client.get("/health/ready")
        assert answer.status_code == 503
        assert answer.json() == {"ready": False, "models": {"loud": True, "broken": False}}
        assert client.get("/health/live").status_code == 200
        broken.works = True
        until(lambda: client.get("/health/ready").status_code == 200)


def test_a_flood_of_texts_that_cannot_be_tokenized_in_time_is_refused_at_once() -> None:
    gate = threading.Event()

    class Slow(Echo):
        def prepare(self, given: object, row: int = 0, **settings: object) -> Prepared:
            gate.wait(0.2)
            return super().prepare(given, row, **settings)

    service = echo_service(Slow())
    with running(make_app(service)) as client:
        url = client.base_url.join("/models/loud/echo")
        asked = {"inputs": ["a text"], "timeout": 0.5}
        assert client.post(url, json=asked).status_code == 200  # from which it knows how long a text takes
        waiting = [threading.Thread(target=lambda: httpx.post(url, json={**asked, "timeout": 30})) for _ in range(10)]
        for thread in waiting:
            thread.start()
        until(lambda: service.preparers.wait > 0.5)
        answer = client.post(url, json=asked)
        assert answer.status_code == 429
        assert float(answer.headers["retry-after"]) >= 1
        assert "too much text waits to be tokenized" in answer.json()["error"]["message"]
        gate.set()
        for thread in waiting:
            thread.join()
        assert client.post(url, json=asked).status_code == 200


def test_an_error_of_the_engine_itself_does_not_end_its_thread(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    dispatcher, raised = server.service.engine.dispatcher, []

    def fail(now: float) -> None:
        raised.append(now)
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(dispatcher, "take", fail)
        until(lambda: len(raised) > 1)
    assert server.ask("afterwards").json()["results"] == [{"value": "AFTERWARDS"}]

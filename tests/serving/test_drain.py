"""A server ends in order: it says so, goes on for a while, refuses what is new, and answers what waits."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest
from support.echoing import until
from support.serving_process import half_a_request, save_model, serving

from serving.lifecycle import SAME_SIGNAL

BODY = json.dumps({"inputs": ["p q r"], "timeout": 60}).encode()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"loud={save_model(tmp_path_factory.mktemp('served') / 'model')}"


def test_sigterm_loses_no_request_and_ends_with_status_0(model: str, tmp_path: Path) -> None:
    with serving(tmp_path, model, "--port", "0", "--set", "grace_seconds=3") as server, server.client() as client:
        assert client.get("/health/ready").status_code == 200
        waiting = half_a_request(server, BODY)
        until(lambda: "ernie_open_calls 2.0" in client.get("/metrics").text)

        for _ in range(2):  # as by timeout(1), which signals the process and its group
            server.send(signal.SIGTERM)
        until(lambda: client.get("/health/ready").status_code == 503)
        answer = client.post("/models/loud/encode", content=BODY)  # a balancer has not noticed yet
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        until(lambda: client.post("/models/loud/encode", content=BODY).status_code == 503)
        refused = client.post("/models/loud/encode", content=BODY)
        assert refused.headers["retry-after"] == "5"
        assert refused.headers["connection"] == "close"
        assert refused.json()["error"]["kind"] == "leaving"
        openai = client.post("/v1/embeddings", json={"model": "loud", "input": "p"})
        assert (openai.status_code, "message" in openai.json()["error"]) == (503, True)
        assert client.get("/health/live").status_code == 200

        waiting.sendall(BODY[-1:])
        answered = waiting.makefile("rb").read()
        assert answered.startswith(b"HTTP/1.1 200")
        assert b'"results"' in answered
        assert server.status() == 0
        assert server.says("the server ends")


def test_a_browser_opens_and_what_is_not_answered_in_time_gets_a_status(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = tmp_path / "opened"
    (browser := tmp_path / "browser").write_text(f'#!/bin/sh\necho "$1" > {opened}\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s &")
    words = ["--open", "--port", "0", "--set", "drain_seconds=0.3"]
    with serving(tmp_path, model, *words) as server, server.client() as client:
        until(lambda: opened.is_file() and opened.read_text() == f"{server.url}/\n")
        waiting = half_a_request(server, BODY)
        until(lambda: "ernie_open_calls 2.0" in client.get("/metrics").text)
        server.send(signal.SIGINT)  # after which there is no grace
        assert server.status() == 0
        assert server.says("not answered in time: 1")
        waiting.close()


def test_a_second_signal_ends_the_server_at_once(model: str, tmp_path: Path) -> None:
    with serving(tmp_path, model, "--port", "0", "--set", "drain_seconds=600") as server, server.client() as client:
        waiting = half_a_request(server, BODY)
        until(lambda: "ernie_open_calls 2.0" in client.get("/metrics").text)
        server.send(signal.SIGTERM)
        until(lambda: server.says("leaving"))
        time.sleep(SAME_SIGNAL)
        server.send(signal.SIGTERM)
        assert server.status() == 128 + signal.SIGTERM
        waiting.close()

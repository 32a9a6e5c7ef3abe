"""Models are replaced while requests go on, and a model that cannot be loaded replaces nothing."""

from __future__ import annotations

import re
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import yaml
from support.echoing import until
from support.serving_process import Server, save_model, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("reloading")
    save_model(folder / "model")
    write(folder, "loud")
    with serving(folder, "serve.yaml") as server:
        yield server


def write(folder: Path, *names: str, **more: object) -> None:
    models = {name: {"path": "model", "precision": "fp32"} for name in names}
    (folder / "serve.yaml").write_text(yaml.safe_dump({"models": models, "port": 0, **more}), encoding="utf-8")


def ask(client: httpx.Client, name: str = "loud") -> httpx.Response:
    return client.post(f"/models/{name}/encode", json={"inputs": ["p q r", "s"] * 8, "timeout": 30})


@contextmanager
def load(server: Server) -> Iterator[list[httpx.Response]]:
    """Three clients that ask one request after another; gives all answers."""
    stop, answers = threading.Event(), list[httpx.Response]()

    def run() -> None:
        with server.client() as client:
            while not stop.is_set():
                answers.append(ask(client))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield answers
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_no_request_fails_and_no_answer_changes_while_a_model_is_reloaded(server: Server) -> None:
    with server.client() as client, load(server) as answers:
        expected = ask(client).content
        loaded = [client.post("/models/loud/reload").json()["loaded_at"] for _ in range(3)]
        assert sorted(set(loaded)) == loaded
        before = len(answers)
        until(lambda: len(answers) > before + 20)
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.content for answer in answers} == {expected}


def test_reloads_that_come_at_once_are_done_one_after_another(server: Server) -> None:
    codes = []

    def reload() -> None:
        with server.client() as client:
            codes.append(client.post("/models/loud/reload").status_code)

    threads = [threading.Thread(target=reload) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert codes == [200, 200, 200]


def test_a_model_that_cannot_be_loaded_replaces_nothing(server: Server) -> None:
    weights = server.folder / "model" / "model.safetensors"
    kept = weights.with_suffix(".kept")
    with server.client() as client:
        expected = ask(client).content
        shutil.copy(weights, kept)
        weights.write_bytes(weights.read_bytes()[:1000])
        try:
            answer = client.post("/models/loud/reload")
        finally:
            kept.replace(weights)
        assert answer.status_code == 422
        assert "models.loud: " in answer.json()["error"]["message"]
        until(lambda: server.says("the model 'loud' was not loaded; the one before is still served"))
        assert 'ernie_model_loads_total{model="loud",outcome="error"} 1.0' in client.get("/metrics").text
        assert ask(client).content == expected
        assert client.get("/health/ready").status_code == 200
        assert client.post("/models/loud/reload").status_code == 200


def test_sighup_adds_and_drops_models_as_the_configuration_says(server: Server) -> None:
    with server.client() as client, load(server) as answers:
        write(server.folder, "loud", "second", drain_seconds=7.0)
        server.send(signal.SIGHUP)
        until(lambda: ask(client, "second").status_code == 200)
        assert client.get("/health/ready").json() == {"ready": True, "models": {"loud": True, "second": True}}
        until(lambda: server.says("drain_seconds: 30.0 becomes 7.0 only after a restart"))
        write(server.folder, "loud")
        server.send(signal.SIGHUP)
        until(lambda: ask(client, "second").status_code == 404)
        assert 'work="second/' not in client.get("/metrics").text
        (server.folder / "serve.yaml").write_text("models: {loud: 3}", encoding="utf-8")
        server.send(signal.SIGHUP)
        until(lambda: server.says("nothing was read again"))
        write(server.folder, "loud")
    assert {answer.status_code for answer in answers} == {200}


@pytest.mark.slow
def test_fifty_reloads_under_load_leave_the_memory_as_it_was(tmp_path: Path) -> None:
    save_model(tmp_path / "model")
    write(tmp_path, "loud")
    with serving(tmp_path, "serve.yaml") as server, server.client() as client, load(server) as answers:

        def memory() -> float:
            found = re.search(r"^process_resident_memory_bytes (\S+)", client.get("/metrics").text, re.MULTILINE)
            assert found
            return float(found[1])

        for _ in range(10):
            assert client.post("/models/loud/reload").status_code == 200
        before = memory()
        for _ in range(50):
            assert client.post("/models/loud/reload").status_code == 200
        after = memory()
        assert after < 1.05 * before, (before, after)
    assert {answer.status_code for answer in answers} == {200}

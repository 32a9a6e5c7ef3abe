"""Several replicas of a server, looked after by one process."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.echoing import until
from support.serving_process import Server, save_model, serving

from serving.replica import Replica

READY = "2 replicas are ready, on the ports"


def free_ports() -> int:
    """The first of two ports that follow one another and that nobody uses."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as first:
            port: int = first.getsockname()[1]
            try:
                socket.create_server(("127.0.0.1", port + 1)).close()
            except OSError:
                continue
            return port


@pytest.fixture(scope="module")
def port() -> int:
    return free_ports()


@pytest.fixture(scope="module")
def server(port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("replicas")
    save_model(folder / "model")
    words = ["loud=model", "--port", str(port), "--set", "replicas=2", "--set", "grace_seconds=0.2"]
    words += ["--set", "unresponsive_seconds=4"]
    with serving(folder, *words, announced=READY) as server:
        yield server
        server.send(signal.SIGTERM)
        assert server.status() == 0
        for number in range(2):
            with pytest.raises(httpx.ConnectError):
                httpx.get(f"http://127.0.0.1:{port + number}/health/live")


def ask(port: int) -> int:
    """The status of an answer, 0 if nothing listens there."""
    asked = {"inputs": ["p"], "timeout": 30}
    try:
        return httpx.post(f"http://127.0.0.1:{port}/models/loud/encode", json=asked, timeout=30).status_code
    except httpx.TransportError:
        return 0


def started(port: int) -> float:
    """When the process was started that serves a port."""
    text = httpx.get(f"http://127.0.0.1:{port}/metrics").text
    (found,) = [line.split()[1] for line in text.splitlines() if line.startswith("process_start_time_seconds ")]
    return float(found)


def process(server: Server, index: int) -> int:
    """The process that was started last for a replica."""
    lines = [line for line in server.log if line["message"].startswith("serving") and line["replica"] == index]
    return int(lines[-1]["pid"])


def test_each_replica_answers_on_a_port_of_its_own_and_its_log_says_which_it_is(server: Server, port: int) -> None:
    assert [ask(port), ask(port + 1)] == [200, 200]
    until(lambda: {line["replica"] for line in server.log if line["message"] == "request"} == {0, 1})


def test_a_replica_that_dies_is_started_again_and_the_other_one_goes_on(server: Server, port: int) -> None:
    os.kill(process(server, 1), signal.SIGKILL)
    until(lambda: server.says("replica 1 has ended with status -9"))
    assert ask(port) == 200
    until(lambda: ask(port + 1) == 200, 60)


def test_a_replica_that_is_alive_but_does_not_go_on_is_started_again(server: Server, port: int) -> None:
    stopped = process(server, 0)
    os.kill(stopped, signal.SIGSTOP)
    until(lambda: server.says("replica 0 does not answer or compute for 4 s; it is killed"))
    until(lambda: process(server, 0) != stopped, 60)
    assert [ask(port), ask(port + 1)] == [200, 200]
    assert not server.says("replica 1 does not answer")


def test_a_replica_whose_engine_is_stuck_gives_no_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.replica.BEAT", 0.001)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    goes_on = [True, True, False, False, False]

    async def main() -> None:
        saying = asyncio.ensure_future(Replica(0, theirs.fileno()).say_ready(goes_on.pop))
        await asyncio.wait([saying])  # until it asks once more than it is told

    asyncio.run(main())
    assert ours.recv(100) == b".."
    ours.close()
    theirs.close()


def test_a_rolling_restart_leaves_one_replica_at_any_time(server: Server, port: int) -> None:
    stop, missed, count = threading.Event(), [], [0]

    def run() -> None:
        while not stop.is_set():
            statuses = []
            for each in (port, port + 1, port):  # as a balancer does: the next one if there is none
                statuses.append(ask(each))
                if statuses[-1] == 200:
                    break
            count[0] += 1
            if statuses[-1] != 200:
                missed.append(statuses)

    before = [started(port), started(port + 1)]
    thread = threading.Thread(target=run)
    thread.start()
    server.send(signal.SIGHUP)
    until(lambda: server.says("replica 1 is replaced"), 90)
    stop.set()
    thread.join()
    assert count[0] > 5
    assert missed == []
    after = [started(port), started(port + 1)]
    assert all(old < new for old, new in zip(before, after, strict=True))


def test_replicas_that_cannot_start_end_the_whole_with_their_status(tmp_path: Path) -> None:
    save_model(tmp_path / "model")
    first = free_ports()
    with socket.create_server(("127.0.0.1", first + 1)):
        words = ["loud=model", "--port", str(first), "--set", "replicas=2"]
        with (
            pytest.raises(AssertionError, match=f"cannot listen on port {first + 1}"),
            serving(tmp_path, *words, announced=READY),
        ):
            pass

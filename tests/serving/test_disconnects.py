"""Clients that go away at any point leave nothing behind."""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
import time

from support.echoing import Echo, echo_service, running, until

from serving.app import make_app

BODY = json.dumps({"inputs": ["a b", "c d e"], "timeout": 30}).encode()
ASKED = b"POST /models/loud/echo HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY
RESET = struct.pack("ii", 1, 0)  # to close by a reset, as a process that is killed


def test_nothing_is_left_of_clients_that_disconnect_at_random_points() -> None:
    service = echo_service(Echo(before=lambda: time.sleep(0.003)))
    with running(make_app(service)) as client:
        port = client.base_url.port or 80

        def disconnect(seed: int) -> None:
            numbers = random.Random(seed)
            for _ in range(60):
                connection = socket.create_connection(("127.0.0.1", port))
                if numbers.random() < 0.5:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                sent = numbers.choice([0, 10, len(ASKED) - 5, len(ASKED), len(ASKED), len(ASKED)])
                connection.sendall(ASKED[:sent])
                time.sleep(numbers.choice([0.0, 0.001, 0.004, 0.01]))
                connection.close()

        threads = [threading.Thread(target=disconnect, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        answers = [client.post("/models/loud/echo", content=BODY) for _ in range(30)]
        for thread in threads:
            thread.join()
        assert {answer.status_code for answer in answers} == {200}
        until(lambda: service.lifecycle.open == 0)
        until(lambda: service.waiting == 0 and service.engine.waiting == (0, 0) and service.preparers.waiting == 0)
        assert client.get("/health/ready").status_code == 200


def test_a_client_that_shuts_its_sending_side_counts_as_gone() -> None:
    """Its last packet is that of one that closed everything, and a server that computes on would compute for many."""
    gate, begun = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        gate.wait(20)

    echo = Echo()
    service = echo_service(echo)
    with running(make_app(service)) as client:
        echo.before = wait
        port = client.base_url.port or 80
        running_one = socket.create_connection(("127.0.0.1", port))
        running_one.sendall(ASKED)
        assert begun.wait(20)
        waiting_one = socket.create_connection(("127.0.0.1", port), timeout=20)
        waiting_one.sendall(ASKED)
        until(lambda: service.engine.waiting[0] == 1)
        waiting_one.shutdown(socket.SHUT_WR)
        assert waiting_one.recv(100) == b""
        until(lambda: service.engine.waiting == (0, 0))
        gate.set()
        assert running_one.recv(100).startswith(b"HTTP/1.1 200")
        running_one.close()
        waiting_one.close()


def test_a_client_that_goes_away_stops_its_long_list_before_it_is_tokenized() -> None:
    prepared = []

    class Counting(Echo):
        def prepare(self, given: object, row: int = 0, **settings: object):  # type: ignore[no-untyped-def]
            prepared.append(row)
            time.sleep(0.002)
            return super().prepare(given, row, **settings)

    service = echo_service(Counting())
    body = json.dumps({"inputs": ["a"] * 1000, "timeout": 60}).encode()
    with running(make_app(service)) as client:
        connection = socket.create_connection(("127.0.0.1", client.base_url.port or 80))
        head = b"POST /models/loud/echo HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body)
        connection.sendall(head + body)
        until(lambda: prepared)
        connection.close()
        until(lambda: service.preparers.waiting == 0 and service.lifecycle.open == 0)
        assert len(prepared) < 1000
        assert service.engine.waiting == (0, 0)

"""Clients that send slowly, too much or nothing keep no connection, and harm nobody else."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import httpx
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from support.echoing import Echo, echo_service, running, until
from uvicorn.server import ServerState
from websockets.exceptions import ConnectionClosedError
from websockets.frames import Frame, Opcode
from websockets.sync.client import connect as websocket

from serving.app import make_app
from serving.connection import Bounds, JoiningTransport, bounded_connection, bounded_socket

BOUNDS = Bounds(connections=40, head_bytes=8192, head_seconds=0.4, body_seconds=0.6, write_seconds=0.5)
ASKED = json.dumps({"inputs": ["p q"]}).encode()
HEAD = b"POST /models/loud/echo HTTP/1.1\r\nhost: a\r\n"


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    service = echo_service(Echo())
    kinds = {"http": bounded_connection(BOUNDS, service.connection_refused), "ws": bounded_socket(BOUNDS)}
    with running(make_app(service, body_limit=100_000), **kinds, timeout_keep_alive=1) as client:
        yield client


@pytest.fixture
def connect(client: httpx.Client) -> Iterator[Connect]:
    connect = Connect(client.base_url.port or 80)
    yield connect
    for connection in connect.open:
        connection.close()


class Connect:
    """Opens plain connections to the server."""

    def __init__(self, port: int):
        self.port, self.open = port, list[socket.socket]()

    def __call__(self, sent: bytes = b"") -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=20)
        self.open.append(connection)
        connection.sendall(sent)
        return connection


def rest(connection: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    found = b""
    with suppress(ConnectionResetError):
        while part := connection.recv(65536):
            found += part
    return found


def others_are_served(client: httpx.Client) -> bool:
    with httpx.Client(base_url=client.base_url) as other:
        return other.post("/models/loud/echo", content=ASKED).status_code == 200


def refused(client: httpx.Client, status: int) -> float:
    """How many connections were refused with this status."""
    with httpx.Client(base_url=client.base_url) as other:
        found = re.search(
            rf'^ernie_connections_refused_total{{status="{status}"}} (\S+)$', other.get("/metrics").text, re.M
        )
    assert found
    return float(found[1])


@pytest.mark.parametrize(
    ("status", "sent"),
    [(400, b"\x00\r\n\r\n"), (408, HEAD), (431, HEAD + b"x: " + b"y" * 9000 + b"\r\n\r\n")],
)
def test_answers_below_all_routes_are_json_and_counted(
    status: int, sent: bytes, client: httpx.Client, connect: Connect
) -> None:
    before = refused(client, status)
    head, _, body = rest(connect(sent)).partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode())
    assert json.loads(body)["error"]["message"]
    assert refused(client, status) == before + 1


WITHOUT_HOST = b"POST /models/loud/echo HTTP/1.1\r\n"
WITH_BODY = b"content-length: %d\r\n\r\n" % len(ASKED) + ASKED
UPGRADE = b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: YQ==\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        (WITHOUT_HOST + WITH_BODY, "found none"),
        (HEAD + b"Host: b\r\n" + WITH_BODY, "found 2"),
        (HEAD + b"host: a\r\n" + WITH_BODY, "found 2"),
        (b"GET /models/none/stream HTTP/1.1\r\n" + UPGRADE, "found none"),
        (HEAD.replace(b"1.1", b"1.0") + b"host: b\r\n" + WITH_BODY, "found 2"),
    ],
)
def test_a_request_without_one_host_is_refused_with_a_sentence(
    sent: bytes, found: str, client: httpx.Client, connect: Connect
) -> None:
    before = refused(client, 400)
    answer = rest(connect(sent + HEAD + WITH_BODY))
    assert answer.startswith(b"HTTP/1.1 400") and answer.count(b"HTTP/1.1") == 1
    error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert error == {"kind": "connection", "message": f"the head of a request: expected one Host header, {found}"}
    assert refused(client, 400) == before + 1


def test_what_follows_a_refused_request_does_not_reach_the_application() -> None:
    app, paths = make_app(echo_service()), list[str]()

    async def noting(scope: Scope, receive: Receive, send: Send) -> None:
        paths.extend([scope["path"]] if scope["type"] == "http" else [])
        await app(scope, receive, send)

    with running(noting, http=bounded_connection(BOUNDS)) as client:
        connection = Connect(client.base_url.port or 80)(WITHOUT_HOST + WITH_BODY + HEAD + WITH_BODY)
        assert rest(connection).startswith(b"HTTP/1.1 400")
        connection.close()
        assert client.get("/health/live").status_code == 200
    assert paths == ["/health/live"]


def test_a_request_of_http_1_0_needs_no_host(connect: Connect) -> None:
    assert rest(connect(WITHOUT_HOST.replace(b"1.1", b"1.0") + WITH_BODY)).startswith(b"HTTP/1.1 200")


def test_a_head_that_asks_for_a_websocket_is_no_longer_than_others(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    answer = rest(connect(b"GET /models/none/stream HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 8150 + b"\r\n" + UPGRADE))
    assert answer.startswith(b"HTTP/1.1 431")
    assert caplog.text == ""


def test_a_connection_on_which_nothing_comes_is_closed(connect: Connect) -> None:
    assert rest(connect()).startswith(b"HTTP/1.1 408")


def test_a_head_that_comes_byte_by_byte_is_not_waited_for(client: httpx.Client, connect: Connect) -> None:
    slow = [connect(HEAD) for _ in range(20)]
    end = time.monotonic() + 5
    while slow and time.monotonic() < end:
        for connection in list(slow):
            try:
                connection.sendall(b"x")
            except OSError:
                slow.remove(connection)
        assert others_are_served(client)
    assert not slow


def test_a_body_that_does_not_come_is_answered_with_408(client: httpx.Client, connect: Connect) -> None:
    connection = connect(HEAD + b"content-length: 100\r\n\r\n{")
    answer = rest(connection)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"the body of a request did not come in time" in answer
    assert others_are_served(client)


def test_a_chunked_body_that_never_ends_is_cut_off(connect: Connect) -> None:
    connection = connect(HEAD + b"transfer-encoding: chunked\r\n\r\n")
    with suppress(OSError):
        for _ in range(20):
            connection.sendall(b"4000\r\n" + b" " * 0x4000 + b"\r\n")
    answer = rest(connection)
    # A reset may overtake the answer, and on a busy machine the time is over before the limit is reached.
    assert answer == b"" or answer.startswith((b"HTTP/1.1 413", b"HTTP/1.1 408"))


@pytest.mark.parametrize("head", [b"x: " + b"y" * 300_000, b"".join(b"x%d: y\r\n" % n for n in range(30_000))])
def test_a_head_that_is_too_long_is_refused_before_it_ends(head: bytes, client: httpx.Client, connect: Connect) -> None:
    connection = connect(HEAD)
    with suppress(OSError):
        connection.sendall(head)
    answer = rest(connection)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431")
    assert others_are_served(client)


def test_a_whole_head_that_is_a_little_too_long_is_refused_with_a_sentence(connect: Connect) -> None:
    answer = rest(connect(HEAD + b"x: " + b"y" * 9000 + b"\r\ncontent-length: 0\r\n\r\n"))
    assert answer.startswith(b"HTTP/1.1 431")
    assert b"expected at most 8,192 bytes" in answer


def test_a_connection_without_requests_is_closed_even_if_blank_lines_come(connect: Connect) -> None:
    connection = connect(HEAD + b"content-length: %d\r\n\r\n" % len(ASKED) + ASKED)
    until(lambda: connection.recv(10_000, socket.MSG_PEEK).endswith(b"}"))
    connection.sendall(b"\r\n")
    start = time.monotonic()
    assert rest(connection).startswith(b"HTTP/1.1 200")
    assert time.monotonic() - start < 15


def test_a_refused_request_whose_body_goes_on_does_not_keep_its_connection(connect: Connect) -> None:
    connection = connect(b"POST /nothing/here/at/all HTTP/1.1\r\nhost: a\r\ncontent-length: 50\r\n\r\n")
    until(lambda: connection.recv(100, socket.MSG_PEEK))
    connection.sendall(b" " * 50)
    assert rest(connection).startswith(b"HTTP/1.1 404")


def test_two_requests_at_once_are_answered_one_after_the_other(connect: Connect) -> None:
    once = HEAD + b"content-length: %d\r\n\r\n" % len(ASKED) + ASKED
    assert rest(connect(2 * once)).count(b"HTTP/1.1 200") == 2


def test_too_many_connections_are_refused_and_it_goes_on_afterwards(client: httpx.Client, connect: Connect) -> None:
    before = refused(client, 503)
    held = [connect(HEAD) for _ in range(60)]
    answers = [rest(connection) for connection in held]
    refused_ones = [answer for answer in answers if answer.startswith(b"HTTP/1.1 503")]
    assert 0 < len(refused_ones) < 40  # on a busy machine the first are closed before the last come
    assert b"retry-after: 1" in refused_ones[0]
    until(lambda: others_are_served(client))
    assert refused(client, 503) >= before + len(refused_ones)  # a reset may overtake an answer


def test_what_is_no_http_is_refused(client: httpx.Client, connect: Connect) -> None:
    for sent in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"GET / HTTP/9.9\r\n\r\n", b"\x00" * 100):
        assert rest(connect(sent)).startswith(b"HTTP/1.1 400")
    assert others_are_served(client)


def test_a_message_in_fragments_is_one_message_also_if_some_are_empty(client: httpx.Client) -> None:
    with websocket(f"ws://127.0.0.1:{client.base_url.port}/models/none/stream") as connection:
        connection.send(["{", "", '"type"', *[""] * 100, ':"start"}'])
        assert json.loads(connection.recv())["kind"] == "not_found"


def test_empty_fragments_take_no_memory() -> None:
    async def main() -> int:
        config = uvicorn.Config(make_app(echo_service()), log_config=None)
        socket: Any = bounded_socket(BOUNDS)(config=config, server_state=ServerState(), app_state={})  # type: ignore[call-arg]
        socket.handle_text(Frame(Opcode.TEXT, b"a", fin=False))
        for _ in range(1000):
            socket.handle_cont(Frame(Opcode.CONT, b"", fin=False))
        return len(socket.frames)

    assert asyncio.run(main()) == 1


def test_text_that_is_no_utf_8_closes_a_websocket_without_a_traceback(
    client: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    with websocket(f"ws://127.0.0.1:{client.base_url.port}/models/none/stream") as connection:
        connection.send(b"\xff\xfe", text=True)
        with pytest.raises(ConnectionClosedError) as caught:
            connection.recv()
        assert caught.value.rcvd is not None and caught.value.rcvd.code == 1007
    assert others_are_served(client)
    assert caplog.text == ""


def test_a_client_that_does_not_read_its_answer_is_cut_off(client: httpx.Client, connect: Connect) -> None:
    large = json.dumps({"inputs": ["word " * 15_000]}).encode()
    once = HEAD + b"content-length: %d\r\n\r\n" % len(large) + large
    connection = socket.socket()
    connect.open.append(connection)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(20)
    connection.connect(("127.0.0.1", connect.port))
    with pytest.raises((ConnectionResetError, BrokenPipeError)):  # the server has closed it
        for _ in range(1000):
            connection.sendall(once)
    assert others_are_served(client)


def test_the_head_of_an_answer_and_its_beginning_are_sent_together_and_in_order() -> None:
    class Sent:
        def __init__(self) -> None:
            self.data: list[bytes] = []

        def write(self, data: bytes) -> None:
            self.data.append(data)

        def close(self) -> None:
            self.data.append(b"closed")

    async def written(*data: bytes, pause_after: int | None = None) -> list[bytes]:
        sent = Sent()
        transport = JoiningTransport(cast(asyncio.Transport, sent), asyncio.get_running_loop())
        for number, each in enumerate(data):
            transport.write(each)
            if number == pause_after:
                await asyncio.sleep(0)
        transport.close()
        await asyncio.sleep(0)
        return sent.data

    head = b"HTTP/1.1 200 OK\r\n\r\n"
    assert asyncio.run(written(head, b"one", b"two")) == [head + b"one", b"two", b"closed"]
    assert asyncio.run(written(head, b"one", pause_after=0)) == [head, b"one", b"closed"]
    assert asyncio.run(written(head)) == [head, b"closed"]
    assert asyncio.run(written(head, b"one", head, b"two")) == [head + b"one", head + b"two", b"closed"]

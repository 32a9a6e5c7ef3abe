"""Connections that cannot be kept open by doing nothing: heads and bodies of bounded size, and readers that read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

_CLOSING = 5.0  # seconds that a closing connection has to take what was written


@dataclass(frozen=True)
class Bounds:
    """What a connection may do, in bytes and seconds.

    A request's head comes within `head_seconds` of the connection or of its own first byte, the body within
    `body_seconds` of the head.  A client takes some of its answer within `write_seconds`.
    """

    connections: int = 10_000
    head_bytes: int = 65_536
    head_seconds: float = 10.0
    body_seconds: float = 60.0
    write_seconds: float = 30.0


def bounded_connection(bounds: Bounds, refused: Callable[[int], None] = lambda status: None) -> type[asyncio.Protocol]:
    """Return the class of connections with these bounds, which uvicorn makes itself.

    `refused` is called with the status of each answer that no application has given.
    """
    return type("BoundedConnection", (_Connection,), {"bounds": bounds, "refused": staticmethod(refused)})


def bounded_socket(bounds: Bounds) -> type[asyncio.Protocol]:
    """Return the class of WebSockets with these bounds, which uvicorn makes itself."""
    return type("BoundedSocket", (_Socket,), {"bounds": bounds})


class _Read(asyncio.Protocol):
    """A connection that is aborted when its client does not take what was written."""

    bounds: Bounds
    loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport
    _writing: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._writing is not None:
            self._writing.cancel()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._writing = self.loop.call_later(self.bounds.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()


class _Socket(_Read, WebSocketsSansIOProtocol):
    """A WebSocket of uvicorn, in which fragments of a message take no more memory than their content."""

    def handle_cont(self, event: Frame) -> None:
        message = self.frames[0] if isinstance(self.frames[0], bytearray) else bytearray(self.frames[0])
        message += event.data
        self.frames = [message]  # type: ignore[list-item]
        if event.fin:
            self.frames = [bytes(message)]
            self.send_receive_event_to_app()

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not self.close_sent:
            try:
                self.frames[0].decode()
            except UnicodeDecodeError:  # of which uvicorn would write a traceback
                self.frames = []
                self.conn.send_close(CloseCode.INVALID_DATA)
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()


class JoiningTransport:
    """A transport on which the head of an answer is sent together with what follows at once.

    Two messages to the operating system take most of the time in which a short answer is written.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop):
        self._transport, self._loop = transport, loop
        self._head = b""
        self._later: asyncio.Handle | None = None

    def write(self, data: bytes) -> None:
        """Write data, at the latest when the event loop turns to something else."""
        if self._later is not None:
            self._later.cancel()
            self._later, data, self._head = None, self._head + data, b""
        elif data.startswith(b"HTTP/"):
            self._head, self._later = data, self._loop.call_soon(self.write, b"")
            return
        self._transport.write(data)

    def close(self) -> None:
        """Close the connection after what was written."""
        if self._later is not None:
            self.write(b"")
        self._transport.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _Connection(_Read, HttpToolsProtocol):
    """A connection of uvicorn, with a timer for what its client has to do next."""

    refused: Callable[[int], None]
    _timer: asyncio.TimerHandle | None = None
    _head_bytes: int | None = None  # None outside of a head

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._joining = JoiningTransport(transport, self.loop)
        if len(self.connections) > self.bounds.connections:
            self._refuse(503, "Service Unavailable", "too many connections are open here", "retry-after: 1\r\n")
            return
        self._within(self.bounds.head_seconds, "the head of a request did not come in time")

    def connection_lost(self, exc: Exception | None) -> None:
        self._no_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._head_bytes is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes is not None and self._head_bytes > self.bounds.head_bytes:
            self._refuse_head()
        is_idle = self.cycle is None or self.cycle.response_complete
        if is_idle and self._timer is None and self.timeout_keep_alive_task is None and self in self.connections:
            # What came was no request, or the rest of one that is answered; uvicorn has stopped its own timer.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = 0
        self._within(self.bounds.head_seconds, "the head of a request did not come in time")

    def on_headers_complete(self) -> None:
        self._head_bytes = None
        self._no_timer()
        if self.transport.is_closing():
            return
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > self.bounds.head_bytes:
            self._refuse_head()
            return
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (not hosts and self.parser.get_http_version() == "1.1"):  # RFC 9112, section 3.2
            found = "found none" if not hosts else f"found {hosts}"
            self._refuse(400, "Bad Request", f"the head of a request: expected one Host header, {found}")
            return
        super().on_headers_complete()
        if self.cycle is not None:
            self.cycle.transport = self._joining  # type: ignore[assignment]
        self._within(self.bounds.body_seconds, "the body of a request did not come in time")

    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._no_timer()
        if not self.transport.is_closing():
            super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        self._no_timer()
        if not self.transport.is_closing():
            super().handle_websocket_upgrade()
            self.parser = None  # type: ignore[assignment] # which refers to this, and reads no more

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "Bad Request", "what came here is no request of HTTP/1.1")

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._end_soon()

    def _within(self, seconds: float, sentence: str) -> None:
        """Refuse the request unless the timer is stopped in time."""
        self._no_timer()
        self._timer = self.loop.call_later(seconds, self._refuse, 408, "Request Timeout", sentence)

    def _no_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse_head(self) -> None:
        found = f"the head of a request: expected at most {self.bounds.head_bytes:,} bytes"
        self._refuse(431, "Request Header Fields Too Large", found)

    def _refuse(self, status: int, phrase: str, sentence: str, headers: str = "") -> None:
        """Answer below the application, unless an answer has begun, and close the connection."""
        self._no_timer()
        if self.transport.is_closing():
            return
        answering = self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete
        if not answering:
            body = f'{{"error":{{"kind":"connection","message":"{sentence}"}}}}'
            head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n{headers}connection: close\r\n"
            self.refused(status)
            self.transport.write(f"HTTP/1.1 {status} {phrase}\r\n{head}\r\n{body}".encode())
        self.transport.close()
        self._end_soon()

    def _end_soon(self) -> None:
        """Abort a closing connection whose client does not take what was written."""
        if self.transport.get_write_buffer_size():
            self.loop.call_later(_CLOSING, self.transport.abort)

"""What every request passes on its way in and out: who may ask, whether the server ends, the log and the counts."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from random import getrandbits
from time import perf_counter
from typing import Any, Protocol

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from serving.access import Access, AccessKind
from serving.http import Problem
from serving.lifecycle import Lifecycle, Phase

_log = logging.getLogger("ernie.requests")
_ID = re.compile(r"[\w.:-]{1,128}", re.ASCII)
_GONE = 499  # the status of a request whose client went away before the answer
_RETRY = "5"  # seconds after which a client asks again: until then a balancer has found another server
_CLOSING = (413,)  # after these the rest of a body may follow, which nobody reads


class HttpObserver(Protocol):
    """What counts requests."""

    def ended(self, route: str, status: int) -> None:
        """A request to this route, or a connection, has ended."""


class Gate:
    """An ASGI application around another one, which answers at one `path`, a template such as /models/{model}.

    `kinds` say by method who may ask; other methods need a key unless everyone may ask.

    The other one finds in the state of the scope: `id`, the request's id; `client`, who asks; `notes`, a dictionary for
    the log; and `problem` if the request is to be refused, for a request of HTTP.
    """

    def __init__(
        self,
        app: ASGIApp,
        path: str,
        kinds: Mapping[str, AccessKind],
        access: Access,
        lifecycle: Lifecycle,
        observer: HttpObserver,
    ):
        self._app, self._path, self._kinds = app, path, dict(kinds)
        if "GET" in kinds:
            self._kinds["HEAD"] = kinds["GET"]
        self._other: AccessKind = "open" if {*kinds.values()} == {"open"} else "key"
        self._access, self._lifecycle, self._observer = access, lifecycle, observer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start, status, is_refused = perf_counter(), _GONE, False
        headers = dict(scope["headers"])
        call_id = headers.get(b"x-request-id", b"").decode("latin-1")
        state = scope.setdefault("state", {})
        notes: dict[str, Any] = {}
        state["id"] = call_id = call_id if _ID.fullmatch(call_id) else f"{getrandbits(128):032x}"
        state["notes"] = notes

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self._lifecycle.phase is not Phase.SERVING or status in _CLOSING or is_refused:
                    message["headers"] = [*message["headers"], (b"connection", b"close")]
            elif message["type"] == "websocket.accept":
                status = 101
            elif message["type"] == "websocket.close" and status == _GONE:
                status = 403
            await send(message)

        self._lifecycle.open += 1
        try:
            try:
                state["client"] = self._client(scope, headers)
            except Problem as problem:
                notes["problem"], is_refused = problem.kind, True
                if scope["type"] == "websocket":
                    await _deny(problem, scope, receive, sending)
                    return
                state["problem"] = problem
            await self._app(scope, receive, sending)
        finally:
            self._lifecycle.open -= 1
            seconds = perf_counter() - start
            self._observer.ended(self._path, status)
            self._write(scope, state, status, seconds)

    def _kind(self, scope: Scope) -> AccessKind:
        return self._kinds.get(scope.get("method", ""), self._other)

    def _client(self, scope: Scope, headers: dict[bytes, bytes]) -> str:
        """Return the name of who asks.  Raises Problem for whoever may not, and for everyone during the drain."""
        if (kind := self._kind(scope)) == "open":
            return _address(scope)
        client = self._access.client(kind, _address(scope), headers, is_socket=scope["type"] == "websocket")
        if self._lifecycle.phase is Phase.DRAINING:
            raise Problem(503, "leaving", "this server is ending; ask another one", {"retry-after": _RETRY})
        return client

    def _write(self, scope: Scope, state: dict[str, Any], status: int, seconds: float) -> None:
        """Write the line of a request to the log; those of probes that succeed are left out."""
        level = logging.DEBUG if self._kind(scope) == "open" and status < 400 else logging.INFO
        if not _log.isEnabledFor(level):
            return
        fields = {
            "id": state["id"],
            "method": scope.get("method", "WEBSOCKET"),
            "route": self._path,
            "status": status,
            "seconds": round(seconds, 6),
            "client": state.get("client", ""),
            **state["notes"],
        }
        line = logging.LogRecord(_log.name, level, "", 0, "request", (), None)  # to find who logs it takes longer
        line.fields = fields
        _log.handle(line)


def _address(scope: Scope) -> str:
    return (scope.get("client") or ("",))[0]


async def _deny(problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
    """Refuse a WebSocket at its handshake."""
    await receive()
    if "websocket.http.response" not in scope.get("extensions", {}):
        await send({"type": "websocket.close", "code": 1008, "reason": problem.sentence[:100]})
        return
    body = problem.sentence.encode()
    head = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    head += [(name.encode(), value.encode("latin-1")) for name, value in problem.headers.items()]
    await send({"type": "websocket.http.response.start", "status": problem.status, "headers": head})
    await send({"type": "websocket.http.response.body", "body": body})

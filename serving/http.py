"""A layer on ASGI for JSON over HTTP: bodies of bounded size, typed messages, and clients that go away."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import msgspec
from starlette.types import Receive, Scope, Send

from ernie.errors import NotFinite, UserError
from serving.dispatcher import Refused, TooLarge
from serving.engine import EngineFailure
from serving.service import Asked, Expired, TooManyInputs, UnknownModel

_log = logging.getLogger("ernie.serving")
M = TypeVar("M")


class Problem(Exception):
    """Why a request is not answered as asked: a status of HTTP, a word for programs, and a sentence for people."""

    def __init__(self, status: int, kind: str, sentence: str, headers: Mapping[str, str] | None = None):
        super().__init__(sentence)
        self.status, self.kind, self.sentence, self.headers = status, kind, sentence, dict(headers or {})


class Reply(NamedTuple):
    """The answer to a request."""

    body: bytes
    status: int = 200
    content_type: bytes = b"application/json"
    headers: tuple[tuple[bytes, bytes], ...] = ()


@dataclass
class Call:
    """A request as handlers see it."""

    body: bytes
    headers: Mapping[bytes, bytes]
    path: Mapping[str, Any]  # the parts of the path that the route names
    client: str
    id: str
    notes: dict[str, Any] = field(default_factory=dict)  # for the log

    def read(self, kind: type[M]) -> M:
        """Return the body as a message.  Raises Problem (422) if it is none."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except msgspec.ValidationError as error:
            raise Problem(422, "invalid", f"the request: {error}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Problem(400, "malformed", f"the body is no JSON: {error}") from None

    def asked(self, timeout: float | None = None, bulk: bool | None = None) -> Asked:
        """Return how the request is to be treated, by its message or else its headers.

        The headers are `x-timeout`, in seconds, and `x-priority`, interactive or bulk.  Raises Problem for others.
        """
        if timeout is None and (given := self.headers.get(b"x-timeout")):
            try:
                timeout = float(given)
            except ValueError:
                timeout = math.nan
        if timeout is not None and not 0 < timeout < math.inf:
            raise Problem(422, "invalid", f"timeout: expected seconds, found {timeout}")
        if bulk is None:
            priority = self.headers.get(b"x-priority", b"interactive").decode("latin-1")
            if priority not in ("interactive", "bulk"):
                raise Problem(422, "invalid", f"x-priority: expected interactive or bulk, found '{priority:.40}'")
            bulk = priority == "bulk"
        return Asked(bulk, timeout, self.client, notes=self.notes)


Handler = Callable[[Call], Awaitable[Reply]]
encode = msgspec.json.Encoder().encode


def as_problem(error: BaseException) -> Problem:
    """Return an error as what a client is told.

    What the client can mend is 4xx.  404: an unknown model.  413: too much.  422: an input that cannot be read.
    429: too busy now.  504: too late.  424: the model failed.
    """
    if isinstance(error, Problem):
        return error
    if isinstance(error, Refused):
        retry = {"retry-after": str(max(1, math.ceil(error.retry_after)))}
        return Problem(429, "overloaded", f"too busy: {error}; ask again in {error.retry_after:.2g} s", retry)
    if isinstance(error, TooLarge | TooManyInputs):
        return Problem(413, "too_large", str(error))
    if isinstance(error, Expired):
        return Problem(504, "expired", str(error))
    if isinstance(error, UnknownModel):
        return Problem(404, "not_found", str(error))
    if isinstance(error, NotFinite | EngineFailure):
        return Problem(424, "model_failed", str(error))
    if isinstance(error, UserError):
        return Problem(422, "invalid", str(error))
    _log.exception("an error of the server's own", exc_info=error)
    return Problem(500, "internal", "an error of the server's own, which its log shows")


class Endpoint:
    """An ASGI application of one route: reads the body, calls a handler, and writes its reply.

    `problem` is how the protocol writes problems.  When the client goes away, the handler is cancelled.
    """

    def __init__(self, handler: Handler, problem: Callable[[Problem], bytes], body_limit: int):
        self._handler, self._problem, self._body_limit = handler, problem, body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        state: dict[str, Any] = scope["state"]  # what serving.gate puts there
        try:
            if "problem" in state:
                raise state.pop("problem")
            body = await self._body(headers, receive)
            if body is None:
                return
            path = scope.get("path_params", {})
            call = Call(body, headers, path, state["client"], state["id"], state["notes"])
            reply = await _unless_disconnected(self._handler(call), receive)
            if reply is None:
                return
        except Exception as error:
            problem = as_problem(error)
            state["notes"]["problem"] = problem.kind
            extra = tuple((name.encode(), value.encode("latin-1")) for name, value in problem.headers.items())
            reply = Reply(self._problem(problem), problem.status, headers=extra)
        await send_reply(reply, send, state["id"])

    async def _body(self, headers: Mapping[bytes, bytes], receive: Receive) -> bytes | None:
        """Return the body, None if the client is gone.  Raises Problem (413) if it is too long."""
        too_long = Problem(413, "too_large", f"the body: expected at most {self._body_limit:,} bytes")
        stated = headers.get(b"content-length", b"0")
        if stated.isdigit() and int(stated) > self._body_limit:
            raise too_long
        parts, size = list[bytes](), 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._body_limit:
                raise too_long
            if not message.get("more_body", False):
                return b"".join(parts)


async def send_reply(reply: Reply, send: Send, call_id: str) -> None:
    """Write a whole reply."""
    head = [
        (b"content-type", reply.content_type),
        (b"content-length", str(len(reply.body)).encode()),
        (b"x-request-id", call_id.encode("latin-1")),
        *reply.headers,
    ]
    await send({"type": "http.response.start", "status": reply.status, "headers": head})
    await send({"type": "http.response.body", "body": reply.body})


async def _unless_disconnected(handler: Awaitable[Reply], receive: Receive) -> Reply | None:
    """Return a handler's reply, or None, and cancel it, if the client goes away meanwhile."""
    answering = asyncio.ensure_future(handler)
    leaving = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        return answering.result() if answering.done() else None
    finally:
        leaving.cancel()
        if not answering.done():
            answering.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass

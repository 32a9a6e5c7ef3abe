"""A layer on ASGI for JSON over HTTP: bodies of bounded size, typed messages, and clients that go away."""

from __future__ import annotations

import asyncio
import logging
import math
import re
import zlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from io import BytesIO
from tempfile import TemporaryFile
from typing import Any, BinaryIO, NamedTuple, TypeVar

import msgspec
import numpy as np
from starlette.types import Receive, Scope, Send

from ernie.errors import NotFinite, UserError
from serving.dispatcher import Refused, TooLarge
from serving.engine import EngineFailure
from serving.service import Asked, Expired, TooLong, TooManyInputs, UnknownModel, Unsuitable
from serving.sessions import Overdue, TooManySessions

_log = logging.getLogger("ernie.serving")
M = TypeVar("M")
T = TypeVar("T")
_MOST_VALUES = 500_000  # of a body: more would keep the event loop busy for too long
_DIGITS = 20  # of a number in a header
_LINGER = 0.2  # seconds for which more of a body is waited for that is too long already
_READ = 4  # times the largest body: of a longer one, no more than that is read
_OBJECT = 10  # values that take as long as an object
# Content types of JSON, and those that curl and binary clients send along with it.
_JSON = re.compile(r"[/+]json\b|/x-www-form-urlencoded|/octet-stream", re.IGNORECASE)
_WATCHED_AFTER = 0.02  # seconds after which it matters whether a client still waits
_FEW = 1 << 13  # numbers that are encoded at once, in about a millisecond
_ZLIB, _GZIP = zlib.MAX_WBITS, 16 + zlib.MAX_WBITS
_CODINGS = {b"gzip": _GZIP, b"x-gzip": _GZIP, b"deflate": _ZLIB}


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


class Streamed(NamedTuple):
    """An answer that is sent piece by piece, as it is made; `close` frees whatever makes it.

    A client that reads slowly slows it down.  If a piece cannot be made, the connection breaks off.
    """

    pieces: AsyncGenerator[bytes, None]
    content_type: bytes
    close: Callable[[], None]


@dataclass
class Call:
    """A request as handlers see it."""

    body: bytes
    headers: Mapping[bytes, bytes]
    path: Mapping[str, Any]  # the parts of the path that the route names
    client: str
    id: str
    notes: dict[str, Any] = field(default_factory=dict)  # for the log
    form: BinaryIO = field(default_factory=BytesIO)  # the body, if the route takes a form

    def read(self, kind: type[M], body: bytes | None = None) -> M:
        """Return the body, or a part of it, as a message.

        Raises Problem: 400 for what is no JSON, 413 for far too many values, 415 for what does not even say that it is
        JSON, 422 for another message.
        """
        body = self.body if body is None else body
        if not body.strip():
            raise Problem(400, "malformed", "the body is empty; expected JSON")
        if len(body) > _MOST_VALUES and body.count(b",") + _OBJECT * body.count(b"{") > _MOST_VALUES:
            raise Problem(413, "too_large", f"the body: expected at most {_MOST_VALUES:,} values; ask for less at once")
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.ValidationError as error:
            raise Problem(422, "invalid", f"the request: {error}") from None
        except RecursionError:
            raise Problem(400, "malformed", "the body: its JSON is nested too deeply") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            said = self.headers.get(b"content-type", b"").decode("latin-1")
            if said and not _JSON.search(said):
                found = f"expected JSON, with the content type application/json, found {said:.60}"
                raise Problem(415, "malformed", f"the body: {found}") from None
            raise Problem(400, "malformed", f"the body is no JSON: {error}") from None

    def asked(self, timeout: float | None = None, bulk: bool | None = None) -> Asked:
        """Return how the request is to be treated, by its message or else its headers.

        The headers are `x-timeout`, in seconds, and `x-priority`, interactive or bulk.  Raises Problem for others.  A
        request that says neither may wait if it is long.
        """
        is_stated = bulk is not None or b"x-priority" in self.headers
        name, stated = "timeout", str(timeout)
        if timeout is None and (given := self.headers.get(b"x-timeout")):
            name, stated = "x-timeout", given.decode("latin-1")
            try:
                timeout = float(given)
            except ValueError:
                timeout = math.nan
        if timeout is not None and not 0 < timeout < math.inf:
            raise Problem(422, "invalid", f"{name}: expected seconds above 0, found {stated:.40}")
        if bulk is None:
            priority = self.headers.get(b"x-priority", b"interactive").decode("latin-1")
            if priority not in ("interactive", "bulk"):
                raise Problem(422, "invalid", f"x-priority: expected interactive or bulk, found '{priority:.40}'")
            bulk = priority == "bulk"
        may_wait = timeout is None and not is_stated
        return Asked(bulk, timeout, self.client, self.notes, len(self.body), may_wait=may_wait)


Handler = Callable[[Call], Awaitable[Reply | Streamed]]
encode = msgspec.json.Encoder().encode


async def encoded_rows(rows: Sequence[np.ndarray]) -> list[msgspec.Raw]:
    """Return arrays as JSON, for messages that contain them.

    The event loop goes on meanwhile: the longest piece that it waits for is an array's last axis.
    """

    if not len(rows):  # it may be an array
        return []

    def encoded() -> list[msgspec.Raw]:
        return [msgspec.Raw(_encoded(row)) for row in rows]

    return encoded() if sum(row.size for row in rows) <= _FEW else await asyncio.to_thread(encoded)


def _encoded(array: np.ndarray) -> bytes:
    return encode(array.tolist()) if array.ndim == 1 else b"[" + b",".join(map(_encoded, array)) + b"]"


def as_problem(error: BaseException) -> Problem:
    """Return an error as what a client is told.

    What the client can mend is 4xx.  404: an unknown model.  408: a session whose client does nothing.  413: too much.
    422: an input that cannot be read.  424: the model failed.  429: too busy now.  504: too late.
    """
    if isinstance(error, Problem):
        return error
    if isinstance(error, Refused):
        # The second header is finer, and known to clients of OpenAI.
        milliseconds = max(1, math.ceil(1000 * error.retry_after))
        retry = {"retry-after": str(math.ceil(milliseconds / 1000)), "retry-after-ms": str(milliseconds)}
        return Problem(429, "overloaded", f"too busy: {error}; ask again in {error.retry_after:.2g} s", retry)
    if isinstance(error, TooLarge | TooManyInputs):
        return Problem(413, "too_large", str(error))
    if isinstance(error, TooLong):
        return Problem(413, "too_long", str(error))
    if isinstance(error, TooManySessions):
        return Problem(429, "overloaded", str(error), {"retry-after": "5"})
    if isinstance(error, Overdue):
        return Problem(408, "overdue", str(error))
    if isinstance(error, Expired):
        return Problem(504, "expired", str(error))
    if isinstance(error, Unsuitable):
        return Problem(404, "unsuitable", str(error))
    if isinstance(error, UnknownModel):
        return Problem(404, "not_found", str(error))
    if isinstance(error, NotFinite | EngineFailure):
        return Problem(424, "model_failed", str(error))
    if isinstance(error, UserError):
        return Problem(422, "invalid", str(error))
    _log.exception("an error of the server's own", exc_info=error)
    return Problem(500, "internal", "an error of the server's own, which its log shows")


class Endpoint:
    """An ASGI application of one path: reads the body, calls the method's handler, and writes its reply.

    The body of a form is kept in a temporary file, since many clients may send large ones.
    Without handlers there is nothing at the path.  `problem` is how the protocol writes problems.  When the client goes
    away, the handler is cancelled.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        problem: Callable[[Problem], Reply],
        body_limit: int,
        is_form: bool = False,
    ):
        self._is_form = is_form
        self._handlers = dict(handlers)
        if "GET" in handlers:
            self._handlers.setdefault("HEAD", handlers["GET"])
        self._problem, self._body_limit = problem, body_limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with TemporaryFile() if self._is_form else BytesIO() as form:
            await self._answer(scope, receive, send, form)

    async def _answer(self, scope: Scope, receive: Receive, send: Send, form: BinaryIO) -> None:
        headers = dict(scope["headers"])
        state: dict[str, Any] = scope["state"]  # what serving.gate puts there
        try:
            if "problem" in state:
                raise state.pop("problem")
            handler = self._handler(scope["method"], scope["path"])
            body = await self._body(headers, receive, form)
            if body is None:
                return
            path = scope.get("path_params", {})
            call = Call(body, headers, path, state["client"], state["id"], state["notes"], form)
            reply = await _unless_disconnected(handler(call), receive)
            if reply is None:
                return
            if isinstance(reply, Streamed):
                await self._stream(reply, receive, send, state)
                return
        except Exception as error:
            reply = self._refusal(as_problem(error), state["notes"])
        await send_reply(reply, send, state["id"])

    def _refusal(self, problem: Problem, notes: dict[str, Any]) -> Reply:
        """Return how the protocol writes a problem."""
        notes["problem"] = problem.kind
        reply = self._problem(problem)
        extra = ((name.encode(), value.encode("latin-1")) for name, value in problem.headers.items())
        return reply._replace(headers=(*reply.headers, *extra))

    async def _stream(self, reply: Streamed, receive: Receive, send: Send, state: dict[str, Any]) -> None:
        """Send an answer piece by piece, until it ends or the client goes away."""
        try:
            await _unless_disconnected(_send_pieces(reply, send, state["id"]), receive)
        except Exception as error:  # its beginning was sent, so that no other answer can be
            state["notes"]["problem"] = as_problem(error).kind
        finally:
            reply.close()

    def _handler(self, method: str, path: str) -> Handler:
        """Return what answers a method.  Raises Problem: 404, 405."""
        if not self._handlers:
            raise Problem(404, "unknown_path", f"there is nothing at {path:.200}; /docs shows what there is")
        if method not in self._handlers:
            allowed = ", ".join(self._handlers)
            found = f"{path:.200}: expected the method {allowed.replace(', HEAD', '')}, found {method:.40}"
            raise Problem(405, "method_not_allowed", found, {"allow": allowed})
        return self._handlers[method]

    def _too_long(self) -> Problem:
        return Problem(413, "too_large", f"the body: expected at most {self._body_limit:,} bytes")

    async def _body(self, headers: Mapping[bytes, bytes], receive: Receive, form: BinaryIO) -> bytes | None:
        """Return the body, decompressed, None if the client is gone.  Raises Problem (413) if it is too long.

        That of a form is written to its file instead.
        """
        stated = headers.get(b"content-length", b"0")[:_DIGITS]
        if b"expect" in headers and stated.isdigit() and int(stated) > self._body_limit:
            raise self._too_long()  # the client waits to hear it before it sends the body
        parts, size = list[bytes](), 0
        while size <= _READ * self._body_limit:
            try:  # what is too much is read on, while it comes: a client that still sends may not see the answer
                message = await (receive() if size <= self._body_limit else asyncio.wait_for(receive(), _LINGER))
            except asyncio.TimeoutError:
                break
            if message["type"] == "http.disconnect":
                return None
            size += len(message.get("body", b""))
            if size <= self._body_limit and self._is_form:
                await asyncio.to_thread(form.write, message.get("body", b""))
            elif size <= self._body_limit:
                parts.append(message.get("body", b""))
            if not message.get("more_body", False):
                break
        if size > self._body_limit:
            raise self._too_long()
        form.seek(0)
        body = b"".join(parts) if len(parts) != 1 else parts[0]
        coding = headers.get(b"content-encoding", b"identity").strip().lower()
        if coding == b"identity":
            return body
        if coding not in _CODINGS or self._is_form:
            wanted = "no content encoding" if self._is_form else "the content encoding gzip or deflate"
            found = f"the body: expected {wanted}, found {coding.decode('latin-1'):.40}"
            raise Problem(415, "malformed", found, {} if self._is_form else {"accept-encoding": "gzip, deflate"})
        whole = await asyncio.to_thread(_decompressed, body, _CODINGS[coding], self._body_limit + 1)
        if len(whole) > self._body_limit:
            raise self._too_long()
        return whole


def _decompressed(body: bytes, window: int, most: int) -> bytes:
    """Return a compressed body, but no more than so many bytes of it.  Raises Problem (400) for a broken one."""
    decompressor = zlib.decompressobj(window)
    try:
        whole = decompressor.decompress(body, most)
    except zlib.error as error:
        raise Problem(400, "malformed", f"the body cannot be decompressed: {error}") from None
    if len(whole) < most and not decompressor.eof:
        raise Problem(400, "malformed", "the body cannot be decompressed: its end is missing")
    return whole


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


async def _send_pieces(reply: Streamed, send: Send, call_id: str) -> None:
    head = [(b"content-type", reply.content_type), (b"x-request-id", call_id.encode("latin-1"))]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    async with aclosing(reply.pieces) as pieces:
        async for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _unless_disconnected(handler: Awaitable[T], receive: Receive) -> T | None:
    """Return a handler's reply, or None, and cancel it, if the client goes away meanwhile.

    Most replies come before the client is watched, which costs two tasks.
    """
    loop, answering, is_gone = asyncio.get_running_loop(), asyncio.current_task(), False
    watch: asyncio.Task[None] | None = None

    async def leaving() -> None:
        nonlocal is_gone
        while (await receive())["type"] != "http.disconnect":
            pass
        is_gone = True
        assert answering is not None
        answering.cancel()

    def begin() -> None:
        nonlocal watch
        watch = loop.create_task(leaving())

    timer = loop.call_later(_WATCHED_AFTER, begin)
    try:
        return await handler
    except asyncio.CancelledError:
        if not is_gone:
            raise
        return None
    finally:
        timer.cancel()
        if watch is not None:
            watch.cancel()

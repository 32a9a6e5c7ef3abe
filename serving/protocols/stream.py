"""The library's own protocol for sessions: a WebSocket at /models/MODEL/stream, where MODEL may be a chain.

docs/reference/streaming.md describes the messages and the states of a connection.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from ernie.audio.convert import Resampler, check_rate
from ernie.audio.wave import of_pcm16, to_pcm16
from ernie.errors import UserError
from serving.access import SUBPROTOCOL
from serving.http import Problem, as_problem, encode
from serving.lifecycle import Phase
from serving.protocols.shared import Medium
from serving.service import Service
from serving.sessions import Event, Overdue, Session, Step

_log = logging.getLogger("ernie.serving")
PATH = "/models/{model}/stream"
_START_SECONDS = 10.0  # for the first message
_CLOSING_SECONDS = 1.0  # for the last ones, to a client that may not read
_LEAST_WAIT = 0.01  # seconds
# The codes with which a connection closes (RFC 6455, section 7.4.1), by the status of a problem; 1008 for others.
_CODES = {400: 1007, 413: 1009, 415: 1003, 424: 1011, 429: 1013, 500: 1011, 503: 1001}
_DONE, _LEAVING, _VIOLATION = 1000, 1001, 1008


class Start(msgspec.Struct, tag_field="type", tag="start", forbid_unknown_fields=True):
    """Begins a session, or resumes one; sound that is sent has `sample_rate` samples a second.

    `follow` asks for a message about each step of each model.
    """

    sample_rate: int | None = None
    resume: str | None = None
    settings: dict[str, Any] = {}
    follow: bool = False


class Text(msgspec.Struct, tag_field="type", tag="text", forbid_unknown_fields=True):
    """More of the text."""

    text: str


class End(msgspec.Struct, tag_field="type", tag="end", forbid_unknown_fields=True):
    """Nothing more will be sent."""


class Save(msgspec.Struct, tag_field="type", tag="save", forbid_unknown_fields=True):
    """The session is to be kept, for another connection to resume."""


class Set(msgspec.Struct, tag_field="type", tag="set", forbid_unknown_fields=True):
    """Other settings of the models, from now on."""

    settings: dict[str, Any]


class Ping(msgspec.Struct, tag_field="type", tag="ping", forbid_unknown_fields=True):
    """Asks what time it is here; `time` is repeated in the answer."""

    time: float


Message: TypeAlias = Start | Text | End | Save | Set | Ping
_decoder = msgspec.json.Decoder(Message)


class StreamSocket:
    """An ASGI application for the connections of this protocol."""

    def __init__(self, service: Service):
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        socket = WebSocket(scope, receive, send)
        await socket.accept(SUBPROTOCOL if SUBPROTOCOL in scope["subprotocols"] else None)
        try:
            connection = await self._opened(socket)
        except WebSocketDisconnect:
            return
        except Exception as error:
            await _fail(socket, error)
            return
        try:
            await connection.run()
        finally:
            connection.session.close()
            scope["state"]["notes"]["received"] = connection.session.received

    async def _opened(self, socket: WebSocket) -> _Connection:
        """Return the connection after its first message.  Raises what refuses it."""
        service, model = self._service, socket.path_params["model"]
        try:
            start = _read(await asyncio.wait_for(_receive(socket), _START_SECONDS))
        except asyncio.TimeoutError:
            raise Problem(408, "overdue", f"no start came within {_START_SECONDS:g} s") from None
        if not isinstance(start, Start):
            raise Problem(422, "invalid", 'the first message: expected {"type": "start"}')
        state = socket.scope["state"]
        session = service.sessions.open(service.streams(model), state["client"], followed=start.follow)
        try:
            state["notes"].update(model=model, session=session.id)
            connection = _Connection(socket, service, session, start)
            if start.resume is not None:
                saved = await asyncio.to_thread(service.sessions.folder_of_states().take, start.resume)
                await asyncio.to_thread(session.resume, saved)
            session.change(start.settings)
            await connection.greet()
        except BaseException:
            session.close()
            raise
        return connection


class _Connection:
    """A client and its session."""

    def __init__(self, socket: WebSocket, service: Service, session: Session, start: Start):
        self.session = session
        self._socket, self._service = socket, service
        self._sound = _Sound(session.takes, start.sample_rate)
        self._has_room, self._has_news = asyncio.Event(), asyncio.Event()
        self._code = _LEAVING  # with which it closes when the session moves away
        session.notify = self._notify

    def _notify(self) -> None:
        self._has_room.set()
        self._has_news.set()

    async def greet(self) -> None:
        """Tell the client that the session has begun."""
        takes, gives = self.session.takes, self.session.gives
        await self._say(
            "ready",
            session=self.session.id,
            takes=Medium.of(None if takes is None else self._sound.rate),
            gives=Medium.of(gives),
            received=self.session.received,
            resumable=self._cannot_be_kept is None,
            settings=self.session.settings,
            stages=[
                {"model": stage.stream.name, "gives": Medium.of(stage.stream.gives)} for stage in self.session.stages
            ],
        )

    async def run(self) -> None:
        """Read from the client and write to it, until either is over."""
        tasks = [asyncio.ensure_future(self._read()), asyncio.ensure_future(self._write())]
        failure: BaseException | None = None
        if self._service.lifecycle.phase is Phase.DRAINING:  # since the connection was made
            self.session.tell(Event("leave"))
        try:
            while not any(task.done() for task in tasks):
                seconds = max(_LEAST_WAIT, self.session.seconds_left())
                await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                self.session.check_time()
            failure = next((error for task in tasks if task.done() and (error := task.exception())), None)
        except Overdue as error:
            failure = error.with_traceback(None)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        if isinstance(failure, Exception) and not isinstance(failure, WebSocketDisconnect):
            await _fail(self._socket, failure)

    async def _read(self) -> None:
        while True:
            received = await _receive(self._socket)
            message = received if isinstance(received, bytes) else _read(received)
            if isinstance(message, Ping):
                await self._say("pong", time=message.time, at=self._service.sessions.clock())
                continue
            while not self.session.takes_more:
                self._has_room.clear()
                await self._has_room.wait()
            if isinstance(message, bytes):
                self._hear(message)
            else:
                self._obey(message)

    def _hear(self, data: bytes) -> None:
        if self.session.takes is None:
            raise Problem(415, "unsupported", 'this session takes text: {"type": "text", "text": ...}, not binary data')
        self.session.put(self._sound.more(data))

    def _obey(self, message: Start | Text | End | Save | Set) -> None:
        if isinstance(message, Start):
            raise UserError("this session has begun; open another connection for another one")
        if isinstance(message, Set):
            self.session.change(message.settings)
        elif isinstance(message, Save):
            if self._cannot_be_kept is not None:
                raise UserError(self._cannot_be_kept)
            self._code = _DONE
            self.session.tell(Event("leave"))
        elif isinstance(message, End):
            if self.session.takes is not None:
                self.session.put(self._sound.rest())
            if self._sound.half:
                self.session.tell(Event("note", "half a sample after the last whole one is left out"))
            self.session.end()
        elif self.session.takes is not None:
            raise Problem(415, "unsupported", "this session takes sound, as binary data, and no text")
        else:
            self.session.put(message.text)

    async def _write(self) -> None:
        while True:
            self._has_news.clear()
            while (event := self.session.take_event()) is not None:
                if event.kind == "leave":
                    await self._leave()
                    return
                if await self._tell(event):
                    return
            await self._has_news.wait()

    async def _tell(self, event: Event) -> bool:
        """Tell the client of an event; return whether it was the last one."""
        if event.kind == "error":
            raise event.value
        if event.kind == "output" and self.session.gives is not None:
            await self._socket.send_bytes(to_pcm16(event.value))
        elif event.kind == "output":
            await self._say("output", text=event.value)
        elif event.kind == "note":
            await self._say("note", message=event.value)
        elif event.kind == "step":
            await self._say("step", **_step(event.value))
        else:
            await self._say("done")
            await self._socket.close(_DONE)
        self.session.sent(event)
        return event.kind == "done"

    async def _leave(self) -> None:
        """Keep the session for another connection, and say so; what was computed is told before."""
        self.session.hold()
        while not self.session.is_settled:
            self._has_news.clear()
            await self._has_news.wait()
        while (event := self.session.take_event()) is not None:
            if event.kind != "leave" and await self._tell(event):
                return
        if self._cannot_be_kept is not None:
            raise Problem(503, "leaving", f"this server is ending, and the session with it: {self._cannot_be_kept}")
        try:
            token = await asyncio.to_thread(self.session.save)
        except OSError as error:
            _log.error("a session could not be kept: %s", error)
            raise Problem(500, "not_kept", f"the session could not be kept: {error.strerror}") from None
        await self._say("state", token=token, received=self.session.received)
        await self._socket.close(self._code)

    async def _say(
        self, kind: Literal["ready", "output", "note", "step", "pong", "done", "state"], **values: Any
    ) -> None:
        await self._socket.send_text(encode({"type": kind, **values}).decode())

    @property
    def _cannot_be_kept(self) -> str | None:
        """Why the session cannot be kept for another connection, None if it can."""
        if not self._service.sessions.keeps:
            return "this server keeps no sessions: its configuration has no sessions_folder"
        if self._sound.is_resampled:
            return f"sound that is resampled cannot go on elsewhere; send {self.session.takes:,} samples a second"
        return None


class _Sound:
    """Samples from binary messages, which may end within a sample, at the rate that a model takes."""

    def __init__(self, takes: int | None, rate: int | None):
        if takes is None and rate is not None:
            raise UserError("sample_rate: this session takes text")
        if rate is not None:
            check_rate(rate, "sample_rate")
        self.rate = rate or takes
        self.is_resampled = self.rate != takes
        self._resampler = Resampler(self.rate, takes) if takes is not None and self.rate is not None else None
        self.half = b""

    def more(self, data: bytes) -> np.ndarray:
        """Return the samples (S,) that are known after more data."""
        data = self.half + data
        whole = len(data) // 2 * 2
        self.half = data[whole:]
        assert self._resampler is not None
        return self._resampler.more(of_pcm16(data[:whole]))

    def rest(self) -> np.ndarray:
        """Return the rest of the samples (S,)."""
        assert self._resampler is not None
        return self._resampler.rest()


def _step(step: Step) -> dict[str, Any]:
    """Return what a client is told of a step."""
    found = {
        "stage": step.stage,
        "taken": step.taken,
        "arrived": step.arrived,
        "began": step.began,
        "ended": step.ended,
        "together": step.together,
    }
    given = {"text": step.text} if step.text is not None else {"samples": step.given} if step.given else {}
    return found | given | dict(step.told)


async def _receive(socket: WebSocket) -> bytes | str:
    """Return the next message.  Raises WebSocketDisconnect."""
    message = await socket.receive()
    if message["type"] == "websocket.disconnect":
        raise WebSocketDisconnect(message.get("code", 1000))
    data: bytes | None = message.get("bytes")
    return message["text"] if data is None else data


def _read(message: bytes | str) -> Message:
    """Return a message of JSON.  Raises Problem if it is none of those that are expected."""
    if isinstance(message, bytes):
        raise Problem(415, "unsupported", "expected a message of JSON, found binary data")
    try:
        return _decoder.decode(message)
    except msgspec.ValidationError as error:
        raise Problem(422, "invalid", f"the message: {error}") from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise Problem(400, "malformed", f"the message is no JSON: {error}") from None


async def _fail(socket: WebSocket, error: Exception) -> None:
    """Tell the client why its session ends, if it reads, and close the connection."""
    problem = as_problem(error)
    socket.scope["state"]["notes"]["problem"] = problem.kind
    message = {"type": "error", "kind": problem.kind, "message": problem.sentence}

    async def tell() -> None:
        await socket.send_text(encode(message).decode())
        await socket.close(_CODES.get(problem.status, _VIOLATION), problem.kind)

    try:
        await asyncio.wait_for(tell(), _CLOSING_SECONDS)
    except (asyncio.TimeoutError, WebSocketDisconnect, RuntimeError):  # it does not read, or is gone
        return

"""A load generator for sessions over WebSockets: every piece of input goes out at its own scheduled time.

  python benchmarks/paced_streams.py --url ws://127.0.0.1:8000/models/words/stream --plan FILE

FILE has JSON: a list of sessions, each a list of pieces, each a time in seconds and what is sent then: a number of
samples of noise, a text, or null for the end.  All sessions begin before time 0.  Frames are made beforehand, so that
many sessions take little of a core.  Prints JSON: for each session the times of its outputs, their bytes, the text or
the digest of the sound, when it was done, and how late each piece was sent.

With `--dialect followed` it asks for the steps of its sessions, as the server's page does, and prints them with their
times, too.  With `--dialect sherpa` it speaks to sherpa-onnx's server: floats instead of 16-bit samples, and no
messages before.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import hashlib
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

import numpy as np

_TEXT, _BINARY, _CLOSE, _PING, _PONG = 1, 2, 8, 9, 10  # opcodes (RFC 6455, section 5.2)
_PATIENCE = 30.0  # seconds to wait for the rest after the last piece
_NOISE = (np.random.default_rng(0).normal(0, 0.1, 1 << 18)).astype(np.float32)

Piece = tuple[float, "int | str | None"]


def frame(opcode: int, payload: bytes) -> bytes:
    """Return a frame of a client.  Its mask is zero, which leaves the payload as it is."""
    n = len(payload)
    if n < 126:
        head = bytes([0x80 | opcode, 0x80 | n])
    elif n < 1 << 16:
        head = bytes([0x80 | opcode, 0xFE]) + n.to_bytes(2, "big")
    else:
        head = bytes([0x80 | opcode, 0xFF]) + n.to_bytes(8, "big")
    return head + bytes(4) + payload


class Frames:
    """The frames of a server, from bytes as they come."""

    def __init__(self) -> None:
        self._left = bytearray()

    def more(self, data: bytes) -> list[tuple[int, bytes]]:
        """Return the opcode and the payload of each frame that is complete now."""
        found, self._left = list[tuple[int, bytes]](), self._left + data
        while len(self._left) >= 2:
            n, start = self._left[1] & 0x7F, 2
            if n >= 126:
                start = 4 if n == 126 else 10
                n = int.from_bytes(self._left[2:start], "big")
            if len(self._left) < start + n:
                break
            found.append((self._left[0] & 0x0F, bytes(self._left[start : start + n])))
            del self._left[: start + n]
        return found


class Dialect:
    """The library's own messages."""

    begins: ClassVar = [frame(_TEXT, b'{"type": "start"}')]
    ends = frame(_TEXT, b'{"type": "end"}')
    greets = True

    def noise(self, offset: int, samples: int) -> bytes:
        """Return a frame of so many samples of noise."""
        numbers = np.take(_NOISE, range(offset, offset + samples), mode="wrap")
        return frame(_BINARY, self.encoded(numbers))

    def encoded(self, numbers: np.ndarray) -> bytes:
        """Return samples as bytes."""
        return (numbers * 32767).clip(-32768, 32767).astype("<i2").tobytes()


class Followed(Dialect):
    """Those of the server's page, which follows its session."""

    begins: ClassVar = [frame(_TEXT, b'{"type": "start", "follow": true}')]


class Sherpa(Dialect):
    """Those of sherpa-onnx's server."""

    begins: ClassVar = []
    ends = frame(_TEXT, b"Done")
    greets = False

    def encoded(self, numbers: np.ndarray) -> bytes:
        return numbers.tobytes()


DIALECTS: dict[str, type[Dialect]] = {"ernie": Dialect, "followed": Followed, "sherpa": Sherpa}


class Session(asyncio.Protocol):
    """One connection, and what came over it."""

    def __init__(self, dialect: Dialect, host: str, path: str):
        self._dialect, self._host, self._path = dialect, host, path
        self._frames, self._head = Frames(), b""
        self._is_open = False
        self._transport: asyncio.Transport | None = None
        loop = asyncio.get_running_loop()
        self.ready, self.over = loop.create_future(), loop.create_future()
        self.origin = 0.0  # of times
        self.outputs: list[tuple[float, int]] = []
        self.texts: list[str] = []
        self.steps: list[tuple[float, dict[str, Any]]] = []
        self.sound = hashlib.sha256()
        self.problem: str | None = None
        self.done: float | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        key = base64.b64encode(bytes(16)).decode()
        lines = [f"GET {self._path} HTTP/1.1", f"Host: {self._host}", "Connection: Upgrade", "Upgrade: websocket"]
        lines += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", ""]
        transport.write("\r\n".join(lines).encode())

    def data_received(self, data: bytes) -> None:
        if not self._is_open:
            self._head += data
            head, mark, data = self._head.partition(b"\r\n\r\n")
            if not mark:
                return
            if b" 101 " not in head.split(b"\r\n")[0]:
                self._end(head.split(b"\r\n")[0].decode())
                return
            self._is_open = True
            self.send(b"".join(self._dialect.begins))
            if not self._dialect.greets:
                self.ready.set_result(None)
        for opcode, payload in self._frames.more(data):
            self._hear(opcode, payload)

    def send(self, data: bytes) -> None:
        """Send frames."""
        if self._transport is not None and not self.over.done():
            self._transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(f"the connection was lost: {error}" if self.done is None else None)

    def _hear(self, opcode: int, payload: bytes) -> None:
        now = time.perf_counter() - self.origin
        if opcode == _PING:
            self.send(frame(_PONG, payload))
        elif opcode == _CLOSE:
            self.send(frame(_CLOSE, payload[:2]))
            self._end(None if self.done is not None else f"closed with {payload!r}")
        elif opcode == _BINARY:
            self.outputs.append((now, len(payload)))
            self.sound.update(payload)
        elif not self._dialect.greets:  # sherpa's server says what it knows so far, or that all is done
            if payload == b"Done!":
                self.done = now
                self._end(None)
            else:
                self.outputs.append((now, len(payload)))
        else:
            self._obey(json.loads(payload), now)

    def _obey(self, message: dict[str, Any], now: float) -> None:
        kind = message["type"]
        if kind == "output":
            self.outputs.append((now, len(message["text"])))
            self.texts.append(message["text"])
        elif kind == "step":
            self.steps.append((now, message))
        elif kind == "ready":
            self.ready.set_result(None)
        elif kind == "done":
            self.done = now
        elif kind == "error":
            self.problem = message["message"]

    def _end(self, problem: str | None) -> None:
        self.problem = self.problem or problem
        if not self.ready.done():
            self.ready.set_exception(ConnectionError(self.problem or "closed before it was ready"))
        if not self.over.done():
            self.over.set_result(None)
        if self._transport is not None:
            self._transport.close()


async def run(url: str, plan: Sequence[Sequence[Piece]], dialect: Dialect, apart: bool) -> dict[str, Any]:
    """Send all pieces on time; return what became of the sessions.  `apart` makes one session wait for another."""
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    frames = sorted(
        (at, n, i, framed(dialect, n, i, what)) for n, pieces in enumerate(plan) for i, (at, what) in enumerate(pieces)
    )
    lag: list[list[float]] = [[0.0] * len(pieces) for pieces in plan]
    sessions, seconds, cpu = list[Session](), 0.0, 0.0
    for group in [[n] for n in range(len(plan))] if apart else [list(range(len(plan)))]:
        own = {n: await connected(dialect, host, port, parts.path) for n in group}
        sessions += own.values()
        used, began = time.process_time(), time.perf_counter()
        for session in own.values():
            session.origin = began
        for at, n, i, data in frames:
            if n in own:
                if (wait := began + at - time.perf_counter()) > 0:
                    await asyncio.sleep(wait)
                lag[n][i] = time.perf_counter() - began - at
                own[n].send(data)
        await asyncio.wait([session.over for session in own.values()], timeout=_PATIENCE)
        seconds += time.perf_counter() - began
        cpu += time.process_time() - used
    found = [
        {
            "outputs": session.outputs,
            "text": "".join(session.texts),
            "steps": session.steps,
            "sound": session.sound.hexdigest(),
            "done": session.done,
            "problem": session.problem if session.over.done() else "it was not over in time",
            "lag": late,
        }
        for session, late in zip(sessions, lag, strict=True)
    ]
    return {"sessions": found, "cpu": cpu, "seconds": seconds}


async def connected(dialect: Dialect, host: str, port: int, path: str) -> Session:
    """Return a session that has begun."""
    loop = asyncio.get_running_loop()
    _, session = await loop.create_connection(lambda: Session(dialect, host, path), host, port)
    await session.ready
    return session


def framed(dialect: Dialect, session: int, piece: int, what: int | str | None) -> bytes:
    """Return the frame of a piece."""
    if what is None:
        return dialect.ends
    if isinstance(what, str):
        return frame(_TEXT, json.dumps({"type": "text", "text": what}).encode())
    return dialect.noise(7919 * session + what * piece, what)


def main() -> None:
    """Send the pieces of a plan and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True)
    parser.add_argument("--plan", type=Path, required=True)
    parser.add_argument("--dialect", choices=list(DIALECTS), default="ernie")
    parser.add_argument("--apart", action="store_true", help="one session after another, each with times of its own")
    arguments = parser.parse_args()
    plan = json.loads(arguments.plan.read_text(encoding="utf-8"))
    json.dump(asyncio.run(run(arguments.url, plan, DIALECTS[arguments.dialect](), arguments.apart)), sys.stdout)


if __name__ == "__main__":
    main()

"""The watchdog's judge: hears what all processes of a run are doing, and tells them when it cannot continue.

It is a process of its own, which the first process of a run starts: reports of hundreds of processes would take time
from the interpreter that trains.  `python -m ernie.parallel.hub` reads a JSON object with the arguments of `Hub` from
standard input, prints its address, and ends with the run.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ernie.parallel.ports import listen
from ernie.parallel.secret import is_secret

FAILED = 75  # exit status of processes that end because one failed, which a restart may fix (EX_TEMPFAIL)
_GRACE = 1.5  # seconds to wait for a better explanation than a broken collective
_LONGEST = 1 << 16  # bytes of a message
_TO_ENTER = 10.0  # seconds in which a connection has to show the secret
_REPORTS = 100  # that are heard in a second, of all processes together


class Place(NamedTuple):
    """What a process is doing: the step, its task, the activity, whether it waits for others, and since when."""

    step: int | None = None
    task: str = ""
    doing: str = "starting"
    waiting: bool = False
    since: float = 0.0

    def __str__(self) -> str:
        parts = [] if self.step is None else [f"step {self.step + 1:,}"]
        parts += [f"task {self.task}"] if self.task else []
        return ", ".join([*parts, self.doing])


@dataclass
class RankState:
    """What the first process knows of a rank: when it last reported, its place, for how long, and how it ended.

    `process` is its process number, `host` the address of its machine; "" if all are on one machine.
    """

    rank: int
    heard: float
    process: int = 0
    host: str = ""
    place: Place = field(default_factory=Place)
    stood: float = 0.0
    gone: bool = False
    done: bool = False
    error: str = ""
    symptom: bool = False
    status: int = FAILED
    failed: float = 0.0

    def named(self, ranks: int = 0) -> str:
        """Return which of so many ranks this is, if their number is to be said, and on which machine."""
        return f"rank {self.rank}{f' of {ranks}' if ranks else ''}{f' on {self.host}' if self.host else ''}"


class Verdict(NamedTuple):
    """Why all processes stop, and their exit status."""

    text: str
    status: int


def judge(states: Sequence[RankState], now: float, limit: float) -> Verdict | None:
    """Return why a run cannot continue, or None.

    `limit` is how many seconds a process may be silent or keep others waiting.  An error inside a collective is only a
    symptom: for a moment, `judge` waits for its cause to be reported.
    """
    ranks = len(states)
    for state in states:
        if state.gone and not state.done:
            return Verdict(f"{state.named(ranks)} has died at {state.place}", FAILED)
        if state.error and not state.symptom:
            return Verdict(f"{state.named(ranks)} failed at {state.place}: {state.error}", state.status)
    working = [state for state in states if not state.done]
    for state in working:
        if now - state.heard > limit:
            silence = f"has said nothing for {limit:g} s since {state.place}"
            return Verdict(f"{state.named(ranks)} {silence}", FAILED)
    broken = [state for state in working if state.error]
    waiting = [state for state in working if state.place.waiting and state.stood > limit]
    if not waiting and not any(now - state.failed > _GRACE for state in broken):
        return None
    late = [state for state in working if not state.place.waiting and not state.error]
    late = late or [state for state in working if state not in waiting and not state.error]
    first = (waiting or broken)[0]
    wait = f"{first.named(ranks)} waited at {first.place}"
    if late:
        names = "; ".join(f"{state.named()} is at {state.place} for {state.stood:.0f} s" for state in late)
        return Verdict(f"{names}, while {wait}", FAILED)
    if broken:
        return Verdict(f"{wait}: {broken[0].error}", FAILED)
    places = "; ".join(f"{state.named()} at {state.place}" for state in working)
    return Verdict(f"the processes wait for each other: {places}", FAILED)


def beat(ranks: int, limit: float) -> float:
    """Return the seconds between two signs of life of a process: more with more processes, far below the limit."""
    return min(max(0.5, ranks / _REPORTS), limit / 8)


def pause(ranks: int) -> float:
    """Return for how many seconds a place that was reported need not be updated."""
    return max(0.05, ranks / _REPORTS)


class Hub:
    """Receives the reports of all processes, judges them, and sends the verdict."""

    def __init__(self, ranks: int, limit: float, host: str, secret: str, ports: Sequence[int] = ()):
        self._limit, self._beat = limit, beat(ranks, limit)
        self._secret, self._is_local = secret, host.startswith("127.")
        self._server = listen(host, ports, backlog=max(64, ranks))
        self.address = f"{host}:{self._server.getsockname()[1]}"
        now = time.monotonic()
        self._states = [RankState(rank, now + 10 * limit) for rank in range(ranks)]  # extra time to connect
        self._received: dict[socket.socket, bytearray] = {}
        self._accepted: dict[socket.socket, float] = {}  # when, for connections that have not shown the secret
        self._beaten = 0.0
        self._speakers: dict[socket.socket, RankState] = {}  # connections that have sent their rank
        self._passed = 0
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)

    def run(self) -> None:
        """Watch the processes until all are done, or have been told why they stop."""
        try:
            verdict = self._listen()
        except Exception as error:
            traceback.print_exception(error)
            verdict = Verdict(f"the watchdog of the processes failed: {type(error).__name__}: {error}", FAILED)
        if verdict is not None:
            self._broadcast({"verdict": list(verdict)}, self._speakers)
            if self._is_local:
                self._kill_silent()

    def _kill_silent(self) -> None:
        """Kill processes that are stopped: they do not hear the verdict, and the launcher would wait for them."""
        for state in self._states:
            if state.process and time.monotonic() - state.heard > self._limit and not state.done:
                with suppress(OSError):
                    os.kill(state.process, signal.SIGKILL)

    def _listen(self) -> Verdict | None:
        """Block until the run cannot continue and return why, or None when all processes are done."""
        while not all(state.done for state in self._states):
            for key, _ in self._selector.select(self._beat):
                if key.fileobj is self._server:
                    self._accept()
                else:
                    self._read(key.fileobj)  # type: ignore[arg-type]
            now = time.monotonic()
            if now - self._beaten > self._beat:
                self._beaten = now
                self._broadcast({}, self._speakers)  # a sign of life
            for connection in [other for other, since in self._accepted.items() if now - since > _TO_ENTER]:
                self._drop(connection)
            verdict = judge(self._states, now, self._limit)
            if verdict is not None:
                return verdict
        return None

    def _accept(self) -> None:
        try:
            connection, _ = self._server.accept()
        except OSError:  # it has gone again, or strangers hold all file descriptors until they are dropped
            return
        connection.setblocking(False)
        self._received[connection], self._accepted[connection] = bytearray(), time.monotonic()
        self._selector.register(connection, selectors.EVENT_READ)

    def _read(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        *lines, rest = (self._received[connection] + data).split(b"\n")
        self._received[connection] = rest
        try:
            for line in lines:
                message = json.loads(line)
                if connection not in self._speakers:
                    self._enter(connection, message)
                self._handle(self._speakers[connection], message)
        except (ValueError, TypeError, LookupError, RecursionError, AttributeError):
            data = b""  # not one of our processes: the port is open to any program of this machine or network
        if not data or len(rest) > _LONGEST:
            self._drop(connection)

    def _enter(self, connection: socket.socket, message: dict[str, Any]) -> None:
        """Let a process speak for its rank.  Raises LookupError for a stranger, and for a second speaker of a rank."""
        state = {state.rank: state for state in self._states}[message["rank"]]
        shown = str(message["secret"]).encode(errors="replace")
        if not is_secret(shown, self._secret) or state in self._speakers.values():
            raise LookupError("this connection may not speak for a rank")
        self._speakers[connection], state.process = state, int(message.get("process", 0))
        address = connection.getpeername()[0]
        state.host = "" if self._is_local else address
        del self._accepted[connection]
        for _ in range(self._passed):  # for a process that connects late
            self._broadcast({"passed": True}, [connection])

    def _drop(self, connection: socket.socket) -> None:
        self._accepted.pop(connection, None)
        if connection in self._speakers:
            self._speakers.pop(connection).gone = True
        self._selector.unregister(connection)
        del self._received[connection]
        connection.close()

    def _handle(self, state: RankState, message: dict[str, Any]) -> None:
        state.heard = time.monotonic()
        if "place" in message:
            *place, state.stood = message["place"]
            state.place = Place(*place)
        elif "done" in message:
            state.done = True
        elif "passed" in message:
            self._passed += 1
            self._broadcast(message, self._speakers)
        elif "error" in message:
            state.error, state.symptom, state.status = message["error"], message["symptom"], message["status"]
            state.failed = time.monotonic()

    def _broadcast(self, message: dict[str, Any], connections: Iterable[socket.socket]) -> None:
        for connection in connections:
            try:
                connection.sendall(json.dumps(message).encode() + b"\n")
            except OSError:
                continue


def _main() -> None:
    for number in (signal.SIGTERM, signal.SIGINT, getattr(signal, "SIGHUP", signal.SIGINT)):
        signal.signal(number, signal.SIG_IGN)  # it ends with the processes that it watches
    hub = Hub(**json.loads(sys.stdin.readline()))
    print(hub.address, flush=True)
    hub.run()


if __name__ == "__main__":
    _main()

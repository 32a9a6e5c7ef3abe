"""A watchdog: detects that a process of a run has died or hangs, and ends all of them with one message.

Each process has a connection to the first one and reports, at least twice a second, what it is doing.  A process that
dies leaves a closed connection; one that hangs sends nothing, or reports the same place for too long while others wait
for it.  The first process then sends a verdict to all of them, with which they exit.  Collectives alone would say less:
all that the others see of a dead process is a timeout of their own.  The first one sends something twice a second, too,
and each other process ends by itself when it hears nothing.

A connection begins with the secret of the run, which only its processes know.  Whoever lacks it is not heard.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple

from ernie.errors import UserError
from ernie.parallel.secret import is_secret, run_secret

FAILED = 75  # exit status of processes that end because one failed, which a restart may fix (EX_TEMPFAIL)
_GRACE = 1.5  # seconds to wait for a better explanation than a broken collective
_FRESH = 0.05  # seconds for which a reported place need not be updated
_KEY = "ernie/watch"
_LONGEST = 1 << 16  # bytes of a message
_TO_ENTER = 10.0  # seconds in which a connection has to show the secret


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

    `process` is its process number.
    """

    rank: int
    heard: float
    process: int = 0
    place: Place = field(default_factory=Place)
    stood: float = 0.0
    gone: bool = False
    done: bool = False
    error: str = ""
    symptom: bool = False
    status: int = FAILED
    failed: float = 0.0


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
            return Verdict(f"rank {state.rank} of {ranks} has died at {state.place}", FAILED)
        if state.error and not state.symptom:
            return Verdict(f"rank {state.rank} of {ranks} failed at {state.place}: {state.error}", state.status)
    working = [state for state in states if not state.done]
    for state in working:
        if now - state.heard > limit:
            silence = f"has said nothing for {limit:g} s since {state.place}"
            return Verdict(f"rank {state.rank} of {ranks} {silence}", FAILED)
    broken = [state for state in working if state.error]
    waiting = [state for state in working if state.place.waiting and state.stood > limit]
    if not waiting and not any(now - state.failed > _GRACE for state in broken):
        return None
    late = [state for state in working if not state.place.waiting and not state.error]
    late = late or [state for state in working if state not in waiting and not state.error]
    first = (waiting or broken)[0]
    wait = f"rank {first.rank} of {ranks} waited at {first.place}"
    if late:
        names = "; ".join(f"rank {state.rank} is at {state.place} for {state.stood:.0f} s" for state in late)
        return Verdict(f"{names}, while {wait}", FAILED)
    if broken:
        return Verdict(f"{wait}: {broken[0].error}", FAILED)
    places = "; ".join(f"rank {state.rank} at {state.place}" for state in working)
    return Verdict(f"the processes wait for each other: {places}", FAILED)


class Unwatched:
    """Stands in for the watch of a single process, which nobody waits for."""

    def __enter__(self) -> Unwatched:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Let an error pass."""

    def at(self, *, step: int | None = None, task: str | None = None, doing: str | None = None) -> None:
        """Do nothing."""

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Do nothing."""
        yield

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Do nothing."""
        yield

    def pass_on(self) -> None:
        """Do nothing: nobody waits."""

    def wait_for_first(self) -> None:
        """Do nothing: this is the first process."""


class Watch:
    """This process's part: a thread that reports what it is doing and ends it when the first process says so.

    `store` is a key-value store that all processes share; `end` handles a verdict.  A process may be silent for at most
    `limit` seconds.  Inside `with watch:`, an error in one process ends all of them with one message.  At the end rank
    0 waits for the others.
    """

    def __init__(
        self, store: Any, rank: int, ranks: int, limit: float, host: str, end: Callable[[Verdict], None] | None = None
    ):
        self._rank, self._limit = rank, limit
        self._beat = min(0.5, limit / 8)
        self._end = end or _end
        self._place = Place(since=time.monotonic())
        self._broken_collective = ""
        self._sending = threading.Lock()
        self._closed = False
        self._passed = threading.Condition()
        self._waits = self._passes = 0  # how often this process waited for the first one, and that one passed on
        self._ranks = ranks
        secret = run_secret(store, rank)
        self._hub = Hub(ranks, limit, host, secret) if rank == 0 else None
        if self._hub is not None:
            store.set(_KEY, self._hub.address.encode())
        to, port = bytes(store.get(_KEY)).decode().rsplit(":", 1)
        self._socket = socket.create_connection((to, int(port)), timeout=max(limit, 5.0))
        self._send(rank=rank, secret=secret, process=os.getpid())
        self._first_process = 0  # its number, if it is on this machine
        self._reported = 0.0  # the time of the last report
        self._thread = threading.Thread(target=self._run, daemon=True, name="watch")
        self._thread.start()

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if isinstance(error, Exception):
                self.failed(error)
        finally:  # also after a signal that ends all of them
            self.close()

    def at(self, *, step: int | None = None, task: str | None = None, doing: str | None = None) -> None:
        """Record that this process has reached another step or task, or does something else."""
        place = self._place
        self._place = Place(
            place.step if step is None else step,
            place.task if task is None else task,
            place.doing if doing is None else doing,
            since=time.monotonic(),
        )
        if self._place.since - self._reported > _FRESH:
            self._report()

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Mark, inside the context, what this process does; after an error the mark stays."""
        before = self._place
        self.at(doing=what)
        yield
        self._place = before._replace(since=time.monotonic())

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Mark, inside the context, that this process waits for others in the collective `what`."""
        before = self._place
        self._place = before._replace(doing=what, waiting=True, since=time.monotonic())
        try:
            yield
        except Exception:
            self._broken_collective = what
            raise
        self._place = before._replace(since=time.monotonic())

    def failed(self, error: BaseException) -> None:
        """Report why this process cannot continue, and end together with all the others."""
        text, status = str(error), FAILED
        if isinstance(error, UserError):
            status = error.status
        else:
            if not self._broken_collective:  # otherwise the trace shows only that others are gone
                traceback.print_exception(error)
            text = f"{type(error).__name__}: {text.strip().splitlines()[-1] if text.strip() else ''}"
        self._report()
        self._send(error=text, symptom=bool(self._broken_collective), status=status)
        self._thread.join(self._limit + 4 * _GRACE)
        os._exit(status)  # no verdict came: the first process is gone as well

    def pass_on(self) -> None:
        """On the first process: release the others from `wait_for_first`."""
        self._send(passed=True)

    def wait_for_first(self) -> None:
        """Wait, without a timeout, until the first process has called `pass_on` as often as this one has waited."""
        self._waits += 1
        with self._passed:
            self._passed.wait_for(lambda: self._passes >= self._waits)

    def close(self) -> None:
        """Report that this process is done; the first one waits for the others."""
        self._closed = True
        self._send(done=True)
        if self._hub is not None:
            self._hub.join(self._limit)

    def _report(self) -> None:
        place, self._reported = self._place, time.monotonic()
        self._send(place=[*place[:4], self._reported - place.since])

    def _send(self, **message: Any) -> None:
        with self._sending, suppress(OSError):  # the reading thread notices
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _run(self) -> None:
        self._socket.settimeout(self._beat)
        received, heard = b"", time.monotonic()
        while not self._closed:
            self._report()
            try:
                data = self._socket.recv(4096)
            except TimeoutError:
                if time.monotonic() - heard > self._limit and not self._closed:
                    self._leave_first()
                    return
                continue
            except OSError:
                data = b""
            heard = time.monotonic()
            if not data:
                if not self._closed:
                    self._end(Verdict(f"rank 0 has died; rank {self._rank} was at {self._place}", FAILED))
                return
            received += data
            *lines, received = received.split(b"\n")
            for line in lines:
                message = json.loads(line)
                if "verdict" in message:
                    self._closed = True
                    self._end(Verdict(*message["verdict"]))
                    return
                if "process" in message:
                    self._first_process = message["process"]
                elif "passed" in message:
                    with self._passed:
                        self._passes += 1
                        self._passed.notify_all()

    def _leave_first(self) -> None:
        """End because the first process is silent.  It cannot end by itself, and the launcher would wait for it."""
        if self._rank == 0:
            return
        if self._first_process:
            with suppress(OSError):
                os.kill(self._first_process, signal.SIGKILL)
        silence = f"rank 0 of {self._ranks} has said nothing for {self._limit:g} s"
        self._end(Verdict(f"{silence}; rank {self._rank} was at {self._place}", FAILED))


class Hub(threading.Thread):
    """In the first process: receives the reports of all processes, judges them, and sends the verdict."""

    def __init__(self, ranks: int, limit: float, host: str, secret: str):
        super().__init__(daemon=True, name="watch hub")
        self._limit = limit
        self._secret, self._is_local = secret, host.startswith("127.")
        self._server = socket.create_server((host, 0), backlog=max(64, ranks))
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
        self.start()

    def run(self) -> None:
        try:
            verdict = self._listen()
        except Exception as error:
            traceback.print_exception(error)
            verdict = Verdict(f"rank 0 can no longer watch the others: {type(error).__name__}: {error}", FAILED)
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
            for key, _ in self._selector.select(min(0.5, self._limit / 8)):
                if key.fileobj is self._server:
                    self._accept()
                else:
                    self._read(key.fileobj)  # type: ignore[arg-type]
            now = time.monotonic()
            if now - self._beaten > min(0.5, self._limit / 8):
                self._beaten = now
                self._broadcast({"process": os.getpid() if self._is_local else 0}, self._speakers)
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


def _end(verdict: Verdict) -> None:
    """End this process at once: its main thread may be blocked in a collective for ever."""
    print(f"ernie: error: {verdict.text}; all processes stop", file=sys.stderr, flush=True)
    os._exit(verdict.status)


def host() -> str:
    """Return the address at which other processes reach this one: the loopback one if all are on this machine."""
    own = os.environ.get("PADDLE_CURRENT_ENDPOINT", "127.0.0.1:0").rsplit(":", 1)[0]
    everyone = os.environ.get("PADDLE_TRAINER_ENDPOINTS", "")
    hosts = {endpoint.rsplit(":", 1)[0] for endpoint in everyone.split(",") if endpoint}
    return "127.0.0.1" if hosts <= {own} else own

"""Whether the processes of a run are alive, and the end of all of them when one is not.

Each process has a connection to the first one and tells it, twice a second or more, where it stands.  What a process
that dies leaves behind is a closed connection; one that stands still says nothing, or the same for too long while
others wait for it.  The first process then tells all of them one sentence, with which they end.  Collectives alone
would say less: what the others see of a dead process is a time-out of their own.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ernie.errors import UserError

FAILED = 75  # the exit status of processes that end because one failed: what a restart may mend (EX_TEMPFAIL)
_GRACE = 1.5  # seconds in which a better reason than a broken collective may come
_FRESH = 0.05  # seconds for which the place that was told is good enough
_KEY = "ernie/watch"


class Place(NamedTuple):
    """Where a process stands: the step, its task, what it does, whether that is waiting for others, since when."""

    step: int | None = None
    task: str = ""
    doing: str = "starting"
    waiting: bool = False
    since: float = 0.0

    def __str__(self) -> str:
        parts = [] if self.step is None else [f"step {self.step}"]
        parts += [f"task {self.task}"] if self.task else []
        return ", ".join([*parts, self.doing])


@dataclass
class Seen:
    """What the first process knows of one: when it was last heard, where it stood, for how long, how it ended."""

    rank: int
    heard: float
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


def judge(seen: Sequence[Seen], now: float, limit: float) -> Verdict | None:
    """Why a run cannot go on, or None: `limit` seconds are how long a process may say nothing, or keep others waiting.

    An error inside a collective is only a symptom, for which a cause is waited a moment.
    """
    ranks = len(seen)
    for one in seen:
        if one.gone and not one.done:
            return Verdict(f"rank {one.rank} of {ranks} has died at {one.place}", FAILED)
        if one.error and not one.symptom:
            return Verdict(f"rank {one.rank} of {ranks} failed at {one.place}: {one.error}", one.status)
    working = [one for one in seen if not one.done]
    for one in working:
        if now - one.heard > limit:
            return Verdict(f"rank {one.rank} of {ranks} has said nothing for {limit:g} s since {one.place}", FAILED)
    broken = [one for one in working if one.error]
    waiting = [one for one in working if one.place.waiting and one.stood > limit]
    if not waiting and not any(now - one.failed > _GRACE for one in broken):
        return None
    late = [one for one in working if not one.place.waiting and not one.error]
    late = late or [one for one in working if one not in waiting and not one.error]
    first = (waiting or broken)[0]
    wait = f"rank {first.rank} of {ranks} waited at {first.place}"
    if late:
        names = "; ".join(f"rank {one.rank} is at {one.place} for {one.stood:.0f} s" for one in late)
        return Verdict(f"{names}, while {wait}", FAILED)
    if broken:
        return Verdict(f"{wait}: {broken[0].error}", FAILED)
    places = "; ".join(f"rank {one.rank} at {one.place}" for one in working)
    return Verdict(f"the processes wait for each other: {places}", FAILED)


class Watch:
    """This process's part: a thread that tells where it stands and ends it when the first process says so.

    `store` is one that all processes share; `end` what is done with a verdict.  A process says nothing for at most
    `limit` seconds.
    """

    def __init__(
        self, store: Any, rank: int, ranks: int, limit: float, host: str, end: Callable[[Verdict], None] | None = None
    ):
        self._rank, self._limit = rank, limit
        self._beat = min(0.5, limit / 8)
        self._end = end or _end
        self._place = Place(since=time.monotonic())
        self._broke_in = ""
        self._sending = threading.Lock()
        self._over = False
        self._passed = threading.Condition()
        self._waited = self._come_to = 0
        self._hub = _Hub(ranks, limit, host) if rank == 0 else None
        if self._hub is not None:
            store.set(_KEY, self._hub.address.encode())
        store.wait(_KEY)
        to, port = bytes(store.get(_KEY)).decode().rsplit(":", 1)
        self._socket = socket.create_connection((to, int(port)), timeout=max(limit, 5.0))
        self._send(rank=rank)
        self._told = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True, name="watch")
        self._thread.start()

    def at(self, *, step: int | None = None, task: str | None = None, doing: str | None = None) -> None:
        """This process has come to another step or task, or does something else."""
        place = self._place
        self._place = Place(
            place.step if step is None else step,
            place.task if task is None else task,
            place.doing if doing is None else doing,
            since=time.monotonic(),
        )
        if self._place.since - self._told > _FRESH:
            self._tell()

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Inside, this process waits for others in the collective `what`."""
        before = self._place
        self._place = before._replace(doing=what, waiting=True, since=time.monotonic())
        try:
            yield
        except Exception:
            self._broke_in = what
            raise
        self._place = before._replace(since=time.monotonic())

    def failed(self, error: BaseException) -> None:
        """Tell why this process cannot go on, and end with all the others."""
        text, status = str(error), FAILED
        if isinstance(error, UserError):
            status = error.status
        else:
            if not self._broke_in:  # otherwise it says no more than that others are gone
                traceback.print_exception(error)
            text = f"{type(error).__name__}: {text.strip().splitlines()[-1] if text.strip() else ''}"
        self._tell()
        self._send(error=text, symptom=bool(self._broke_in), status=status)
        self._thread.join(self._limit + 4 * _GRACE)
        os._exit(status)  # the first process is gone as well

    def pass_on(self) -> None:
        """The first process: let the others go on from `wait_for_first`."""
        self._send(passed=True)

    def wait_for_first(self) -> None:
        """Wait until the first process has passed on as often as this one has waited, however long that takes."""
        self._waited += 1
        with self._passed:
            self._passed.wait_for(lambda: self._come_to >= self._waited)

    def close(self) -> None:
        """The end of a run that is done; the first process waits for the others."""
        self._over = True
        self._send(done=True)
        if self._hub is not None:
            self._hub.join(self._limit)

    def _tell(self) -> None:
        place, self._told = self._place, time.monotonic()
        self._send(place=[*place[:4], self._told - place.since])

    def _send(self, **message: Any) -> None:
        with self._sending, suppress(OSError):  # the thread that reads notices
            self._socket.sendall(json.dumps(message).encode() + b"\n")

    def _run(self) -> None:
        self._socket.settimeout(self._beat)
        received = b""
        while not self._over:
            self._tell()
            try:
                found = self._socket.recv(4096)
            except TimeoutError:
                continue
            except OSError:
                found = b""
            if not found:
                if not self._over:
                    self._end(Verdict(f"rank 0 has died; rank {self._rank} was at {self._place}", FAILED))
                return
            received += found
            *lines, received = received.split(b"\n")
            for line in lines:
                message = json.loads(line)
                if "verdict" in message:
                    self._over = True
                    self._end(Verdict(*message["verdict"]))
                    return
                with self._passed:
                    self._come_to += 1
                    self._passed.notify_all()


class _Hub(threading.Thread):
    """In the first process: hears all of them, judges, and tells the verdict."""

    def __init__(self, ranks: int, limit: float, host: str):
        super().__init__(daemon=True, name="watch hub")
        self._limit = limit
        self._server = socket.create_server((host, 0), backlog=max(64, ranks))
        self.address = f"{host}:{self._server.getsockname()[1]}"
        now = time.monotonic()
        self._seen = [Seen(rank, now + 10 * limit) for rank in range(ranks)]  # the time to come
        self._received: dict[socket.socket, bytearray] = {}
        self._speakers: dict[socket.socket, Seen] = {}  # those that have said who they are
        self._passed = 0
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)
        self.start()

    def run(self) -> None:
        try:
            verdict = self._heard()
        except Exception as error:
            traceback.print_exception(error)
            verdict = Verdict(f"rank 0 can no longer watch the others: {type(error).__name__}: {error}", FAILED)
        if verdict is not None:
            self._tell({"verdict": list(verdict)}, self._received)

    def _heard(self) -> Verdict | None:
        """Why a run cannot go on, once that is so; None when all are done."""
        while not all(one.done for one in self._seen):
            for key, _ in self._selector.select(min(0.5, self._limit / 8)):
                if key.fileobj is self._server:
                    self._accept()
                else:
                    self._read(key.fileobj)  # type: ignore[arg-type]
            verdict = judge(self._seen, time.monotonic(), self._limit)
            if verdict is not None:
                return verdict
        return None

    def _accept(self) -> None:
        connection, _ = self._server.accept()
        connection.setblocking(False)
        self._received[connection] = bytearray()
        self._selector.register(connection, selectors.EVENT_READ)
        for _ in range(self._passed):  # it comes late
            self._tell({"passed": True}, [connection])

    def _read(self, connection: socket.socket) -> None:
        try:
            found = connection.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            found = b""
        *lines, rest = (self._received[connection] + found).split(b"\n")
        self._received[connection] = rest
        try:
            for line in lines:
                message = json.loads(line)
                if connection not in self._speakers:
                    self._speakers[connection] = {one.rank: one for one in self._seen}[message["rank"]]
                self._hear(self._speakers[connection], message)
        except (ValueError, TypeError, LookupError, RecursionError):
            found = b""  # none of ours says such a thing: the port is open to any program on the network
        if not found:
            self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        if connection in self._speakers:
            self._speakers.pop(connection).gone = True
        self._selector.unregister(connection)
        del self._received[connection]
        connection.close()

    def _hear(self, seen: Seen, message: dict[str, Any]) -> None:
        seen.heard = time.monotonic()
        if "place" in message:
            *place, seen.stood = message["place"]
            seen.place = Place(*place)
        elif "done" in message:
            seen.done = True
        elif "passed" in message:
            self._passed += 1
            self._tell(message, self._received)
        elif "error" in message:
            seen.error, seen.symptom, seen.status = message["error"], message["symptom"], message["status"]
            seen.failed = time.monotonic()

    def _tell(self, message: dict[str, Any], connections: Iterable[socket.socket]) -> None:
        for connection in connections:
            try:
                connection.sendall(json.dumps(message).encode() + b"\n")
            except OSError:
                continue


def _end(verdict: Verdict) -> None:
    """End this process at once: its main thread may stand in a collective for ever."""
    print(f"ernie: error: {verdict.text}; all processes stop", file=sys.stderr, flush=True)
    os._exit(verdict.status)


def host() -> str:
    """The address at which other processes find this one."""
    return os.environ.get("PADDLE_CURRENT_ENDPOINT", "127.0.0.1:0").rsplit(":", 1)[0]

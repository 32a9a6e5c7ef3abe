"""A watchdog: detects that a process of a run has died or hangs, and ends all of them with one message.

Each process has a connection to a judge (see `ernie.parallel.hub`) and reports every now and then what it is doing.  A
process that dies leaves a closed connection; one that hangs sends nothing, or reports the same place for too long while
others wait for it.  The judge then sends a verdict to all of them, with which they exit.  Collectives alone would say
less: all that the others see of a dead process is a timeout of their own.  The judge, a child of the first process,
gives signs of life, too.  A process that hears nothing from it ends by itself.

A connection begins with the secret of the run, which only its processes know.  Whoever lacks it is not heard.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Any

from ernie.errors import UserError
from ernie.parallel.hub import FAILED, Place, Verdict, beat, pause
from ernie.parallel.secret import run_secret

_TO_LEAVE = 6.0  # seconds until the verdict on an error has come
_KEY = "ernie/watch"


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
    0 waits for the others.  It listens at the address `host`, on one of the `ports` (see `listen`).
    """

    def __init__(
        self,
        store: Any,
        rank: int,
        ranks: int,
        limit: float,
        host: str,
        end: Callable[[Verdict], None] | None = None,
        ports: Sequence[int] = (),
    ):
        self._rank, self._limit = rank, limit
        self._beat, self._pause = beat(ranks, limit), pause(ranks)
        self._end = end or _end
        self._place = Place(since=time.monotonic())
        self._broken_collective = ""
        self._sending = threading.Lock()
        self._closed = False
        self._passed = threading.Condition()
        self._waits = self._passes = 0  # how often this process waited for the first one, and that one passed on
        self._ranks = ranks
        secret = run_secret(store, rank)
        self._hub: subprocess.Popen[str] | None = None
        if rank == 0:
            self._hub, address = _start_hub(ranks=ranks, limit=limit, host=host, secret=secret, ports=list(ports))
            store.set(_KEY, address.encode())
        to, port = bytes(store.get(_KEY)).decode().rsplit(":", 1)
        self._first = "rank 0" if to.startswith("127.") else f"rank 0 on {to}"
        self._socket = socket.create_connection((to, int(port)), timeout=max(limit, 5.0))
        self._send(rank=rank, secret=secret, process=os.getpid())
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
        if self._place.since - self._reported > self._pause:
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
        self._thread.join(self._limit + _TO_LEAVE)
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
            with suppress(subprocess.TimeoutExpired):
                self._hub.wait(self._limit)

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
                    self._end(Verdict(f"{self._first} has died; rank {self._rank} was at {self._place}", FAILED))
                return
            received += data
            *lines, received = received.split(b"\n")
            for line in lines:
                message = json.loads(line)
                if "verdict" in message:
                    self._closed = True
                    self._end(Verdict(*message["verdict"]))
                    return
                if "passed" in message:
                    with self._passed:
                        self._passes += 1
                        self._passed.notify_all()

    def _leave_first(self) -> None:
        """End because the machine of the first process is silent, or cannot be reached."""
        silence = f"{self._first} of {self._ranks} has said nothing for {self._limit:g} s"
        self._end(Verdict(f"{silence}; rank {self._rank} was at {self._place}", FAILED))


def _start_hub(**arguments: Any) -> tuple[subprocess.Popen[str], str]:
    """Start the judge; return its process and its address."""
    hub = subprocess.Popen(
        [sys.executable, "-m", "ernie.parallel.hub"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert hub.stdin is not None
    assert hub.stdout is not None
    with suppress(BrokenPipeError):
        hub.stdin.write(json.dumps(arguments) + "\n")
        hub.stdin.close()
    if not (address := hub.stdout.readline().strip()):
        raise ConnectionError(f"the watchdog of the processes did not start, exit status {hub.wait()}")
    return hub, address


def _end(verdict: Verdict) -> None:
    """End this process at once: its main thread may be blocked in a collective for ever."""
    print(f"ernie: error: {verdict.text}; all processes stop", file=sys.stderr, flush=True)
    os._exit(verdict.status)

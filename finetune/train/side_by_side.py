"""Trials side by side: processes that train one trial after the other, each with its share of the processor's cores.

A small model in small batches gains little from many cores, and nothing from the last of them.  The processes are those
of `trial_worker`.  A worker gets names of trials through a socket, a line each, and answers each with a line of JSON.
"""

from __future__ import annotations

import json
import selectors
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from ernie.errors import TrainingFailed, UserError
from ernie.parallel.launch import environment
from ernie.train.interrupt import Interrupt

_WORKER = Path(__file__).with_name("trial_worker.py")
_STDERR = 2  # what tasks and plug-ins print is not the output of the command
_LINE = 1 << 16  # bytes that are read at a time


def train_side_by_side(
    folder: Path,
    identity: str,
    names: Sequence[str],
    jobs: int,
    done: Callable[[str, int], None],
    say: Callable[[str], None],
) -> None:
    """Train these trials of a run, so many at once.

    `done` is called after each of them with its name and how many there are yet.  The first error of a trial stops the
    others, which save before.  Raises this error: UserError or TrainingFailed.
    """
    crew = _Crew(names, done)
    with Interrupt(say, "finishing the steps of all trials and saving") as interrupt:
        try:
            for _ in range(jobs):
                crew.hire(folder, identity, jobs)
            crew.run(lambda: interrupt.asked is not None)
        finally:
            crew.kill()
        if interrupt.asked is not None:
            say("stopped; the same command resumes from here")
            interrupt.act()
    if crew.errors:
        raise crew.errors[0]


class _Worker:
    """A process, the socket to it, and the trial that it has been given."""

    def __init__(self, folder: Path, identity: str, jobs: int) -> None:
        self.socket, other = socket.socketpair()
        with other:
            self.process = subprocess.Popen(
                [sys.executable, str(_WORKER), str(other.fileno()), str(folder), identity],
                env=environment(jobs),
                stdin=subprocess.DEVNULL,
                stdout=_STDERR,
                pass_fds=[other.fileno()],
                start_new_session=True,  # so that Ctrl-C reaches the workers only through this process
            )
        self.trial: str | None = None
        self._read = b""

    def give(self, name: str) -> None:
        """Have the worker train a trial."""
        self.trial = name
        with suppress(OSError):  # it is gone: its end is heard next
            self.socket.sendall(f"{name}\n".encode())

    def let_go(self) -> None:
        """Have the worker end once it has nothing to do."""
        self.trial = None
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def answers(self) -> list[bytes] | None:
        """Return the lines that have come; None if none will come any more."""
        try:
            new = self.socket.recv(_LINE)
        except ConnectionResetError:
            new = b""
        *lines, self._read = (self._read + new).split(b"\n")
        return lines if new else None


class _Crew:
    """The workers of a run, and the trials that are still to be given to one."""

    def __init__(self, names: Sequence[str], done: Callable[[str, int], None]) -> None:
        self.errors: list[UserError] = []
        self._waiting, self._left, self._done = deque(names), len(names), done
        self._workers: list[_Worker] = []
        self._is_ending = False

    def hire(self, folder: Path, identity: str, jobs: int) -> None:
        """Start one more worker, one of so many."""
        self._workers.append(_Worker(folder, identity, jobs))

    def run(self, is_asked_to_end: Callable[[], bool]) -> None:
        """Train all trials, or have the workers save and end once that is asked, or a trial has failed."""
        with selectors.DefaultSelector() as sockets:
            for worker in self._workers:
                sockets.register(worker.socket, selectors.EVENT_READ, worker)
                self._give_next(worker)
            while sockets.get_map():
                for key, _ in sockets.select(0.1):
                    if not self._hear(key.data):
                        sockets.unregister(key.fileobj)
                if not self._is_ending and (self.errors or is_asked_to_end()):
                    self._is_ending = True
                    self._waiting.clear()
                    for worker in self._workers:
                        worker.process.terminate()

    def kill(self) -> None:
        """Kill workers that are still there, as after a second signal."""
        for worker in self._workers:
            worker.process.kill()
            worker.process.wait()
            worker.socket.close()

    def _give_next(self, worker: _Worker) -> None:
        if self._waiting:
            worker.give(self._waiting.popleft())
        else:
            worker.let_go()

    def _hear(self, worker: _Worker) -> bool:
        """Act on what a worker has answered; return whether it can answer any more."""
        answers = worker.answers()
        if answers is None:
            status = worker.process.wait()
            if worker.trial is not None and not self._is_ending:
                self.errors.append(UserError(f"{worker.trial}: {_how_it_ended(status)}"))
            return False
        for line in answers:
            answer = json.loads(line)
            name, worker.trial = worker.trial, None
            if "error" in answer:
                kind = TrainingFailed if answer["status"] == TrainingFailed.status else UserError
                self.errors.append(kind(answer["error"]))
            elif name is not None:
                self._left -= 1
                self._done(name, self._left)
                self._give_next(worker)
        return True


def _how_it_ended(status: int) -> str:
    if status == -signal.SIGKILL:
        return "its process was killed, perhaps for want of memory. The same command goes on; fewer --jobs take less"
    how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
    return f"its process {how}. The same command goes on"

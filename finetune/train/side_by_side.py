"""Trials side by side: processes that train one trial after the other, each with its share of the processor's cores.

A small model in small batches gains little from many cores, and nothing from the last of them.  Each process runs the
command `ernie finetune` on the run's own configuration, with an environment variable that makes it a worker.  It reads
names of trials, a line each, and answers each with a line of JSON.  The end of its input while it trains means that
the process which gave the trial is gone: it then saves, and ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from ernie.errors import TrainingFailed, UserError
from ernie.formatting import duration
from ernie.parallel.launch import environment
from ernie.train.interrupt import Interrupt
from ernie.train.run_folder import CONFIG

_TRIALS_OF = "ERNIE_TRIALS_OF"  # the environment variable with the identity of the run that a worker trains trials of
_STOPPED = 128 + signal.SIGTERM


def run_of_worker() -> str | None:
    """Return the identity of the run whose trials this process was started to train; None if it was not."""
    return os.environ.get(_TRIALS_OF)


def train_side_by_side(
    folder: Path,
    identity: str,
    names: Sequence[str],
    jobs: int,
    done: Callable[[str, str], None],
    say: Callable[[str], None],
) -> None:
    """Train these trials of a run, so many at once.

    `done` is called after each of them, one call at a time, with its name and a note on how many there are yet.  The
    first error of a trial stops the others, which save before.  Raises this error: UserError or TrainingFailed.
    """
    crew = _Crew(folder, identity, names, min(jobs, len(names)), done)
    with Interrupt(say, "finishing the steps of all trials and saving") as interrupt:
        try:
            crew.run(lambda: interrupt.asked is not None)
        finally:
            crew.kill()
        if interrupt.asked is not None:
            say("stopped; the same command resumes from here")
            interrupt.act()
    if crew.errors:
        raise crew.errors[0]


class _Crew:
    """The workers of a run, and the trials that are still to be handed out."""

    def __init__(
        self, folder: Path, identity: str, names: Sequence[str], jobs: int, done: Callable[[str, str], None]
    ) -> None:
        self.errors: list[UserError] = []
        self._waiting, self._count, self._done = deque(names), len(names), done
        self._lock, self._began, self._finished = threading.Lock(), time.monotonic(), 0
        words = ["finetune", str(folder / CONFIG), "--output", str(folder), "--quiet"]
        self._workers = [
            subprocess.Popen(
                [sys.executable, "-m", "ernie.cli", *words],
                env={**environment(jobs), _TRIALS_OF: identity},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,  # so that Ctrl-C reaches the workers only through this process
            )
            for _ in range(jobs)
        ]

    def run(self, is_asked_to_end: Callable[[], bool]) -> None:
        """Train all trials, or have the workers save and end once that is asked, or a trial has failed."""
        with ThreadPoolExecutor(len(self._workers)) as pool:
            left = {pool.submit(self._keep_busy, worker) for worker in self._workers}
            is_told = False
            while left:
                left = wait(left, timeout=0.1).not_done
                if not is_told and (self.errors or is_asked_to_end()):
                    self._waiting.clear()
                    for worker in self._workers:
                        worker.send_signal(signal.SIGTERM)
                    is_told = True

    def kill(self) -> None:
        """Kill workers that are still there, as after a second signal."""
        for worker in self._workers:
            worker.kill()
            worker.wait()

    def _keep_busy(self, worker: subprocess.Popen[str]) -> None:
        """Give a worker one trial after the other, and end it."""
        assert worker.stdin is not None
        assert worker.stdout is not None
        with worker.stdin, worker.stdout:
            while self._waiting:
                try:
                    name = self._waiting.popleft()
                    worker.stdin.write(f"{name}\n")
                    worker.stdin.flush()
                except (IndexError, BrokenPipeError):  # another worker has taken the last one, or this one is gone
                    break
                answer = worker.stdout.readline()
                if not answer or "error" in json.loads(answer):
                    self._fail(name, worker, answer)
                    break
                self._finish(name)
        worker.wait()

    def _finish(self, name: str) -> None:
        with self._lock:
            self._finished += 1
            left = self._count - self._finished
            pace = (time.monotonic() - self._began) / self._finished
            self._done(name, f"{left} left, {duration(pace * left)}" if left else "the last")

    def _fail(self, name: str, worker: subprocess.Popen[str], answer: str) -> None:
        if answer:
            told = json.loads(answer)
            kind = TrainingFailed if told["status"] == TrainingFailed.status else UserError
            self.errors.append(kind(told["error"]))
        elif (status := worker.wait()) != _STOPPED:
            how = f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"
            self.errors.append(
                UserError(f"{name}: its process {how}. The same command goes on; fewer --jobs take less memory")
            )


def work(train: Callable[[str], None]) -> int:
    """Train the trials that this process is given, until its input ends; return its exit status."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what anything prints is not taken for an answer
    orders: SimpleQueue[str] = SimpleQueue()
    busy = threading.Event()

    def read() -> None:
        for line in sys.stdin:
            busy.set()
            orders.put(line.rstrip("\n"))
        orders.put("")
        if busy.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=read, daemon=True, name="orders").start()
    try:
        while name := orders.get():
            answer: dict[str, Any] = {"done": name}
            try:
                train(name)
            except UserError as error:
                answer = {"error": str(error), "status": error.status}
            busy.clear()
            print(json.dumps(answer), file=answers, flush=True)
    except KeyboardInterrupt:
        return _STOPPED
    return 0

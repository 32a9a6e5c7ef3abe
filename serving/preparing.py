"""Threads that tokenize: a bounded pool, so that a flood of long texts keeps neither the event loop nor memory busy.

A short text is tokenized at once instead: to hand it to a thread would take longer.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

_log = logging.getLogger("ernie.serving")
_MEMORY = 0.98  # how much of an average is left after one more task
_AT_ONCE = 0.0003  # seconds of processor time that a task may take the event loop
_SHORT = 2000  # characters of such a task
_KNOWN = 20  # tasks after which it is known how long those of a kind take
Task = Callable[[], None]


class Preparers:
    """A pool of threads that run tasks in the order of arrival; at most `most_waiting` characters wait for them."""

    def __init__(self, threads: int, most_waiting: int):
        self._queue: SimpleQueue[tuple[int, Task, _Pace | None] | None] = SimpleQueue()
        self._most_waiting = most_waiting
        self._waiting = 0
        self._seconds = self._characters = 0.0  # of tasks lately
        self._paces: dict[str, _Pace] = {}  # by kind
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._run, name="prepare", daemon=True) for _ in range(threads)]

    def start(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            thread.start()

    def stop(self, timeout: float | None = None) -> None:
        """End the threads after what they are doing; tasks that wait are dropped."""
        while True:
            try:
                self._queue.get_nowait()
            except Empty:
                break
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            if thread.is_alive():
                thread.join(timeout)

    def submit(self, characters: int, task: Task, kind: str = "") -> bool:
        """Let a task wait that reads so many characters; return False, and forget it, if too many wait already.

        A task with a `kind` is run at once if those of its kind were so quick lately that it takes hardly any time.
        """
        pace = (self._paces.get(kind) or self._paces.setdefault(kind, _Pace())) if kind else None
        if pace is not None and pace.seconds_of(characters) <= _AT_ONCE:
            pace.run(task, characters)
            return True
        with self._lock:
            if self._waiting and self._waiting + characters > self._most_waiting:
                return False
            self._waiting += characters
        self._queue.put((characters, task, pace))
        return True

    @property
    def waiting(self) -> int:
        """The number of characters that wait."""
        return self._waiting

    @property
    def wait(self) -> float:
        """The seconds until all that waits is tokenized, as fast as it went lately."""
        with self._lock:
            return self._waiting * self._seconds / max(1.0, self._characters) / len(self._threads)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            characters, task, pace = item
            start = time.perf_counter()
            try:
                if pace is None:
                    task()
                else:
                    pace.run(task, characters)
            except BaseException:  # such as a panic of the tokenizer's Rust code
                _log.exception("a preparing thread goes on after an error of its own")
            finally:
                with self._lock:
                    self._waiting -= characters
                    self._seconds = _MEMORY * self._seconds + time.perf_counter() - start
                    self._characters = _MEMORY * self._characters + characters


class _Pace:
    """How much processor time the tasks of a kind took lately."""

    def __init__(self) -> None:
        self._seconds = self._characters = 0.0
        self._tasks = 0

    def seconds_of(self, characters: int) -> float:
        """Return how long a task is expected to take, infinite if that is unknown or the task is not a short one."""
        if self._tasks < _KNOWN or characters > _SHORT:
            return math.inf
        return self._seconds * characters / self._characters

    def run(self, task: Task, characters: int) -> None:
        """Run a task, and learn how long it takes."""
        start = time.thread_time()
        try:
            task()
        finally:
            self._seconds = _MEMORY * self._seconds + time.thread_time() - start
            self._characters = _MEMORY * self._characters + characters
            self._tasks += 1

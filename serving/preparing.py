"""Threads that tokenize: a bounded pool, so that a flood of long texts keeps neither the event loop nor memory busy."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

_log = logging.getLogger("ernie.serving")
_MEMORY = 0.98  # how much of an average is left after one more task
Task = Callable[[], None]


class Preparers:
    """A pool of threads that run tasks in the order of arrival; at most `most_waiting` characters wait for them."""

    def __init__(self, threads: int, most_waiting: int):
        self._queue: SimpleQueue[tuple[int, Task] | None] = SimpleQueue()
        self._most_waiting = most_waiting
        self._waiting = 0
        self._seconds = self._characters = 0.0  # of tasks lately
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

    def submit(self, characters: int, task: Task) -> bool:
        """Let a task wait that reads so many characters; return False, and forget it, if too many wait already."""
        with self._lock:
            if self._waiting and self._waiting + characters > self._most_waiting:
                return False
            self._waiting += characters
        self._queue.put((characters, task))
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
            characters, task = item
            start = time.perf_counter()
            try:
                task()
            except BaseException:  # such as a panic of the tokenizer's Rust code
                _log.exception("a preparing thread goes on after an error of its own")
            finally:
                with self._lock:
                    self._waiting -= characters
                    self._seconds = _MEMORY * self._seconds + time.perf_counter() - start
                    self._characters = _MEMORY * self._characters + characters

"""The engine: the one thread that computes, batch after batch, and what other threads ask of it."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ernie.errors import UserError
from ernie.outcome import Outcome
from serving.dispatcher import Batch, Dispatcher, Job, Lane

_log = logging.getLogger("ernie.serving")
T = TypeVar("T")
_IDLE = 0.5  # seconds between two signs of life while nothing waits
_PAUSE = 0.05  # seconds after an error of the engine itself, which may come again at once
_STUCK = 30.0  # seconds after which a batch that goes on, or a silent thread, means that something is wrong


class EngineFailure(UserError):
    """An input for which the model's code failed, although the input was valid."""

    status = 1


@dataclass(eq=False)
class Work(Lane):
    """A lane with what computes its items: one outcome for each.  An exception is found to be that of an item.

    A job has at most `most_asked` tokens, None for any number.  Its jobs wait in `lane`: in the lane itself, or in one
    that it shares with others.
    """

    compute: Callable[[Sequence[Any]], Sequence[Outcome[Any]]] = field(kw_only=True)
    most_asked: int | None = field(default=None, kw_only=True)
    shared: Work | None = field(default=None, kw_only=True)

    @property
    def lane(self) -> Work:
        """The lane in which its jobs wait."""
        return self.shared or self


@dataclass(frozen=True)
class Computed:
    """What the engine reports after each batch: the outcomes of the batch's items, and the jobs that expired."""

    batch: Batch | None
    outcomes: Sequence[Outcome[Any]]
    expired: Sequence[Job]
    ended: float

    @property
    def seconds(self) -> float:
        """How long the batch took."""
        return self.ended - self.batch.started if self.batch else 0.0


class Engine:
    """Computes what is submitted to it, in a thread of its own that survives whatever a batch raises.

    Model code may even raise SystemExit.  `report` is called in that thread after each batch.
    """

    def __init__(
        self,
        report: Callable[[Computed], None],
        dispatcher: Dispatcher | None = None,
        clock: Callable[[], float] = time.monotonic,
    ):
        self.dispatcher, self.clock = dispatcher or Dispatcher(), clock
        self._report = report
        self._condition = threading.Condition()
        self._is_stopping = False
        self._cancelled: deque[Job] = deque()
        self._calls: deque[Callable[[], None]] = deque()
        self._alive_at = clock()
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float | None = None) -> None:
        """End the thread after the batch that is running; what waits is not computed."""
        with self._condition:
            self._is_stopping = True
            self._condition.notify()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def submit(self, job: Job) -> None:
        """Let a job wait for its turn.  Raises Refused or TooLarge (see Dispatcher.submit)."""
        with self._condition:
            self._forget()
            self.dispatcher.submit(job, self.clock())
            self._condition.notify()

    def call(self, function: Callable[[], T]) -> T:
        """Return what a function returns when it is run between two batches, in the engine's thread."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(function())
            except BaseException as error:
                done.set_exception(error)

        with self._condition:
            self._calls.append(run)
            self._condition.notify()
        return done.result()

    def cancel(self, job: Job) -> None:
        """Forget a job; nothing more of it will be computed.

        This waits for no other thread, so that a flood of clients that go away does not keep the event loop.
        """
        job.cancelled = True
        self._cancelled.append(job)

    @property
    def waiting(self) -> tuple[int, int]:
        """The number of jobs and of tokens that wait."""
        with self._condition:
            self._forget()
            return self.dispatcher.jobs, self.dispatcher.tokens

    def _forget(self) -> None:
        """Take the jobs that were cancelled out of the queue; the caller holds the condition."""
        while self._cancelled:
            self.dispatcher.cancel(self._cancelled.popleft())

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs, and has finished a batch or been idle lately."""
        return self._thread.is_alive() and self.clock() - self._alive_at < _STUCK

    def _run(self) -> None:
        while not self._is_stopping:
            try:
                self.turn()
            except BaseException:
                _log.exception("the engine's thread goes on after an error of its own")
                time.sleep(_PAUSE)

    def turn(self) -> None:
        """Compute one batch, or wait for one; before it, run a function that was asked for."""
        with self._condition:
            self._alive_at = self.clock()
            call = self._calls.popleft() if self._calls else None
        if call is not None:
            call()
        with self._condition:
            self._alive_at = self.clock()
            self._forget()
            batch, expired = self.dispatcher.take(self._alive_at)
            if batch is None and not expired:
                if not self._calls:
                    self._condition.wait(_IDLE)
                return
        if batch is None:
            self._report(Computed(None, (), expired, self._alive_at))
            return
        assert isinstance(batch.lane, Work)
        outcomes, failures = list[Outcome[Any]](), 1
        try:
            outcomes, failures = self._compute(batch.lane, [job.items[i] for job, i in batch.items])
        finally:
            with self._condition:
                end = self.clock()
                self.dispatcher.finished(batch, end, succeeded=not failures)
            if not outcomes:
                outcomes = [Outcome(error=EngineFailure("the engine failed"))] * len(batch.items)
            self._report(Computed(batch, outcomes, expired, end))

    def _compute(self, work: Work, items: Sequence[Any]) -> tuple[list[Outcome[Any]], int]:
        """Return the outcome of each item, and how many computations raised an exception."""
        try:
            outcomes = list(work.compute(items))
            if len(outcomes) != len(items):
                raise AssertionError(f"{work.name} returned {len(outcomes)} outcomes for {len(items)} inputs")
            return outcomes, 0
        except BaseException as error:  # also a SystemExit of the model's code: this thread is for all requests
            if len(items) == 1:
                if isinstance(error, UserError):
                    return [Outcome(error=error)], 1
                _log.exception("%s failed on an input", work.name)
                return [Outcome(error=EngineFailure(f"the model failed on this input: {type(error).__name__}"))], 1
        half = len(items) // 2
        first, failures = self._compute(work, items[:half])
        second, more = self._compute(work, items[half:])
        return first + second, failures + more + 1

"""Worker processes, or none: one pool for what makes batches and what builds a corpus."""

from __future__ import annotations

import pickle
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from multiprocessing import get_context
from types import TracebackType
from typing import Any, TypeVar

from ernie.errors import UserError
from ernie.runtime import initialize_worker, signals_held
from ernie.terminal import plain_warnings

T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 2  # items that `map` has in flight for each process


def _nothing() -> None:
    pass


class Workers:
    """A pool of `processes` worker processes; a context manager that ends them.

    The processes are spawned, not forked: Paddle's threads do not survive a fork.  Each runs `prepare` when it starts.
    With 0 processes a thread does what is submitted, and the caller does what is mapped.  `advice` says what to do when
    a process was killed.
    """

    def __init__(self, processes: int, advice: str, prepare: Callable[[], None] = _nothing):
        self.processes = processes
        self._advice = advice
        self._executor: Executor = (
            ProcessPoolExecutor(processes, get_context("spawn"), partial(_start, prepare))
            if processes
            else ThreadPoolExecutor(1, thread_name_prefix="worker")
        )

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the workers; what they have not begun is dropped."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    def submit(self, function: Callable[..., R], *arguments: Any) -> Future[R]:
        """Have a worker call `function`.  Its result, and the call itself, belong inside `reporting_killed`."""
        # A process may start now, and Ctrl-C may come before it has imported its modules.
        with signals_held() if self.processes else nullcontext():
            call = partial(_called, function) if self.processes else function
            return self._executor.submit(call, *arguments)

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Yield the result of `function` for each of `items`, in order, reading few items ahead.

        Raises UserError if a worker process is killed.
        """
        if not self.processes:
            yield from map(function, items)
            return
        pending: deque[Future[R]] = deque()
        with reporting_killed(self._advice):
            for item in items:
                pending.append(self.submit(function, item))
                if len(pending) > _AHEAD * self.processes:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()


@contextmanager
def reporting_killed(advice: str) -> Iterator[None]:
    """Raise UserError, which ends with the advice, if a worker process is killed meanwhile."""
    try:
        yield
    except BrokenProcessPool:
        raise UserError(f"a worker process was killed; the usual reason is that memory ran out. {advice}") from None


_entered = ExitStack()  # to the end of a worker process


def _start(prepare: Callable[[], None]) -> None:
    initialize_worker()
    _entered.enter_context(plain_warnings())
    prepare()


def _called(function: Callable[..., R], *arguments: Any) -> R:
    """Call a function.  An error that could not be sent to the caller becomes one that can, with its traceback."""
    try:
        return function(*arguments)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            raise RuntimeError("".join(traceback.format_exception(error))) from None
        raise

"""Worker processes, or none: one pool for what makes batches and what builds a corpus."""

from __future__ import annotations

import pickle
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from ctypes import c_bool
from functools import partial
from multiprocessing import get_context
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar, cast

from ernie.errors import UserError
from ernie.runtime import initialize_worker, signals_held
from ernie.terminal import plain_warnings

T = TypeVar("T")
R = TypeVar("R")
Result = TypeVar("Result", covariant=True)

_SECONDS = 5.0  # between two looks at whether the pool waits for what no longer comes
_AHEAD = 2  # items that `map` has in flight for each process
_NOT_STARTED = (
    "worker processes could not start; their own error is shown above. They import the main program anew: in a script, "
    'call this below `if __name__ == "__main__":`; where there is no file, as in a notebook, define tasks in a module. '
    "0 workers need no process."
)


def _nothing() -> None:
    pass


class Pending(Protocol[Result]):
    """A result to come."""

    def result(self) -> Result:
        """Wait for it."""
        ...

    def cancel(self) -> object:
        """Drop the work unless it was begun."""
        ...


class Workers:
    """A pool of `processes` worker processes; a context manager that ends them.

    The processes are spawned, not forked: Paddle's threads do not survive a fork.  Each runs `prepare` when it starts.
    With 0 processes a thread does what is submitted, and the caller does what is mapped.  `advice` says what to do when
    a process was killed.
    """

    def __init__(self, processes: int, advice: str, prepare: Callable[[], None] = _nothing):
        self.processes = processes
        self._advice = advice
        context = get_context("spawn")
        self._begun: c_bool = context.RawValue(c_bool, False)  # whether a process has started
        self._executor: Executor = (
            ProcessPoolExecutor(processes, context, partial(_start, self._begun, prepare))
            if processes
            else ThreadPoolExecutor(1, thread_name_prefix="worker")
        )

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End the workers; what they have not begun is dropped."""
        self._end_if_broken()
        self._executor.shutdown(wait=True, cancel_futures=True)

    def submit(self, function: Callable[..., R], *arguments: Any) -> Pending[R]:
        """Have a worker call `function`.

        Raises UserError if a worker process has ended before its work is done; so does `result`.
        """
        if not self.processes:
            return self._executor.submit(function, *arguments)
        # A process may start now, and Ctrl-C may come before it has imported its modules.
        with self._reporting_ended(), signals_held():
            return _Result(self, self._executor.submit(partial(_called, function), *arguments))

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Yield the result of `function` for each of `items`, in order, reading few items ahead.

        Raises UserError if a worker process ends before its work is done.
        """
        if not self.processes:
            yield from map(function, items)
            return
        pending: deque[Pending[R]] = deque()
        for item in items:
            pending.append(self.submit(function, item))
            if len(pending) > _AHEAD * self.processes:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    def wait(self, future: Future[R]) -> R:
        """Return the result of a call once it is there.  Raises UserError if a worker process has ended before."""
        with self._reporting_ended():
            while not wait([future], _SECONDS).done:
                self._end_if_broken()
            return future.result()

    def _end_if_broken(self) -> None:
        """Have all calls fail if a process has ended, and the pool waits for the rest of what it was sending.

        The pool does so for ever, as it holds the other end of the pipe itself (seen in Python 3.11.7).
        """
        processes = list((getattr(self._executor, "_processes", None) or {}).values())
        if any(process.exitcode is not None for process in processes):
            for process in processes:
                process.kill()
            with suppress(AttributeError, OSError):
                cast(Any, self._executor)._result_queue._writer.close()

    @contextmanager
    def _reporting_ended(self) -> Iterator[None]:
        try:
            yield
        except BrokenProcessPool:
            if not self._begun.value:
                raise UserError(_NOT_STARTED) from None
            raise UserError(
                f"a worker process was killed; the usual reason is that memory ran out. {self._advice}"
            ) from None


class _Result(Generic[R]):
    """The result of a worker process."""

    def __init__(self, workers: Workers, future: Future[R]):
        self._workers, self._future = workers, future

    def result(self) -> R:
        return self._workers.wait(self._future)

    def cancel(self) -> object:
        return self._future.cancel()


_entered = ExitStack()  # to the end of a worker process
_failed: list[Exception] = []  # what a worker process could not be prepared by


def _start(begun: c_bool, prepare: Callable[[], None]) -> None:
    initialize_worker()
    _entered.enter_context(plain_warnings())
    begun.value = True
    try:
        prepare()
    except Exception as error:
        _failed.append(error)


def _called(function: Callable[..., R], *arguments: Any) -> R:
    """Call a function.  An error that could not be sent to the caller becomes one that can, with its traceback."""
    try:
        for error in _failed:
            raise error
        return function(*arguments)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            raise RuntimeError("".join(traceback.format_exception(error))) from None
        raise

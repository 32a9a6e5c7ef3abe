"""A process pool that keeps order and bounds memory; with no processes, the work is done by the caller."""

from __future__ import annotations

import pickle
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

from ernie.atomic import partial_folder
from ernie.errors import UserError
from ernie.runtime import initialize_worker

T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 2  # items in flight per process


class Workers:
    """`processes` worker processes; a context manager that ends them.

    They are spawned, so that they do not depend on the caller's threads.  Shared objects are kept in files beside
    `output`, where the next Workers with the same output removes what a killed process left.
    """

    def __init__(self, processes: int, output: Path):
        if processes < 0:
            raise UserError(f"--processes: expected at least 0, found {processes}")
        self._processes = processes
        self._executor: ProcessPoolExecutor | None = None
        self._place = output.absolute().with_name(f"{output.absolute().name}.shared")
        self._folder: Path | None = None
        self._numbers = count()

    def __enter__(self) -> Workers:
        folder = partial_folder(self._place)
        if self._processes:
            try:
                folder.mkdir(parents=True)
            except OSError as error:
                raise UserError(f"{self._place.parent}: may not be written: {error.strerror}") from None
            self._folder = folder
            self._executor = ProcessPoolExecutor(self._processes, get_context("spawn"), initializer=initialize_worker)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def share(self, value: T) -> Shared[T]:
        """Pass something large to all workers: through a file, which each reads once."""
        if self._folder is None:
            return Shared(value, None)
        path = self._folder / f"shared-{next(self._numbers)}.pickle"
        path.write_bytes(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
        return Shared(value, path)

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Yield the result of `function` for each of `items`, in order, reading few items ahead.

        Raises UserError if a worker process is killed.
        """
        if self._executor is None:
            yield from map(function, items)
            return
        pending: deque[Future[R]] = deque()
        try:
            for item in items:
                pending.append(self._executor.submit(function, item))
                if len(pending) > _AHEAD * self._processes:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool:
            raise UserError(
                "a worker process ended abruptly; the usual reason is that the machine ran out of memory. "
                "Try again with fewer --processes."
            ) from None


class Shared(Generic[T]):
    """A value that all workers have a copy of.  It is pickled as no more than a file name."""

    def __init__(self, value: T | None, path: Path | None):
        self._value = value
        self._path = path

    @property
    def value(self) -> T:
        """The value itself, loaded when it is first needed."""
        if self._value is None:
            self._value = _load(self._path)
        return self._value

    def __reduce__(self) -> tuple[Any, ...]:
        return Shared, (None, self._path)


@lru_cache(maxsize=8)
def _load(path: Path) -> Any:
    return pickle.loads(path.read_bytes())

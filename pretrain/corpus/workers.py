"""Processes that share the work, in order and with bounded memory; or none, and the work is done here."""

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

from ernie.beside import beside
from ernie.errors import UserError
from ernie.runtime import begin_worker

T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 2  # pieces of work under way for each process


class Workers:
    """`processes` worker processes; a context manager that ends them.

    They are spawned, so that they do not depend on the threads of whoever calls.  What they share lies beside `output`,
    where the next one of that name clears away what a killed process left.
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
        folder = beside(self._place)
        if self._processes:
            try:
                folder.mkdir(parents=True)
            except OSError as error:
                raise UserError(f"{self._place.parent}: may not be written: {error.strerror}") from None
            self._folder = folder
            self._executor = ProcessPoolExecutor(self._processes, get_context("spawn"), initializer=begin_worker)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def share(self, thing: T) -> Shared[T]:
        """Hand something large to all workers: through a file, which each reads once."""
        if self._folder is None:
            return Shared(thing, None)
        path = self._folder / f"shared-{next(self._numbers)}.pickle"
        path.write_bytes(pickle.dumps(thing, pickle.HIGHEST_PROTOCOL))
        return Shared(thing, path)

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """The results of `function` for each of `items`, in their order; few are read ahead.

        Raises UserError when a worker process is killed.
        """
        if self._executor is None:
            yield from map(function, items)
            return
        under_way: deque[Future[R]] = deque()
        try:
            for item in items:
                under_way.append(self._executor.submit(function, item))
                if len(under_way) > _AHEAD * self._processes:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        except BrokenProcessPool:
            raise UserError(
                "a worker process ended abruptly; the usual reason is that the machine ran out of memory. "
                "Try again with fewer --processes."
            ) from None


class Shared(Generic[T]):
    """Something that all workers have a copy of.  Pickled, it is no more than the name of a file."""

    def __init__(self, thing: T | None, path: Path | None):
        self._thing = thing
        self._path = path

    @property
    def thing(self) -> T:
        """The thing itself."""
        if self._thing is None:
            self._thing = _load(self._path)
        return self._thing

    def __reduce__(self) -> tuple[Any, ...]:
        return Shared, (None, self._path)


@lru_cache(maxsize=8)
def _load(path: Path) -> Any:
    return pickle.loads(path.read_bytes())

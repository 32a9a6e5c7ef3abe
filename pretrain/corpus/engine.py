"""What does the work of building a corpus: processes of this machine, or a cluster."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

from ernie.atomic import partial_folder
from ernie.data.workers import Workers
from ernie.errors import UserError

T = TypeVar("T")
R = TypeVar("R")


class Broadcast(Generic[T]):
    """A value that all workers have a copy of.  It is pickled as no more than the `place` from which they `load` it."""

    def __init__(self, load: Callable[[Any], T], place: Any, value: T | None = None):
        self._load, self._place, self._value = load, place, value

    @property
    def value(self) -> T:
        """The value itself, loaded when it is first needed."""
        if self._value is None:
            self._value = self._load(self._place)
        return self._value

    def __reduce__(self) -> tuple[Any, ...]:
        return Broadcast, (self._load, self._place)


class Engine(Protocol):
    """Workers, and how they get what they work on; a context manager that ends them."""

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Yield the result of `function` for each of `items`, in order.

        Items are taken when workers are nearly free, and few results wait, so that memory does not grow with the
        number of items.  A function is called again where a worker was lost and the engine tolerates it.
        """
        ...

    def broadcast(self, value: T) -> Broadcast[T]:
        """Pass a large object to all workers, which each load it once."""
        ...


class LocalEngine(Workers):
    """Worker processes of this machine, or none, to which objects are broadcast through files.

    The files lie beside `output`.  The next LocalEngine with the same output removes those that a killed process has
    left.
    """

    def __init__(self, processes: int, output: Path):
        if processes < 0:
            raise UserError(f"--processes: expected at least 0, found {processes}")
        place = output.absolute()
        folder = partial_folder(place.with_name(f"{place.name}.shared"))  # removes what was left
        if processes:
            try:
                folder.mkdir(parents=True)
            except OSError as error:
                raise UserError(f"{place.parent}: may not be written: {error.strerror}") from None
        self._folder, self._numbers = folder, count()
        super().__init__(processes, "Run the same command again with fewer --processes.")

    def __enter__(self) -> LocalEngine:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        shutil.rmtree(self._folder, ignore_errors=True)

    def broadcast(self, value: T) -> Broadcast[T]:
        """Pass a large object to all workers: through a file, which each reads once."""
        if not self.processes:
            return Broadcast(_load, None, value)
        path = self._folder / f"shared-{next(self._numbers)}.pickle"
        path.write_bytes(pickle.dumps(value, pickle.HIGHEST_PROTOCOL))
        return Broadcast(_load, path, value)


@lru_cache(maxsize=8)
def _load(path: Path) -> Any:
    return pickle.loads(path.read_bytes())

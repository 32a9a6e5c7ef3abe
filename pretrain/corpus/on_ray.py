"""The work of building a corpus on a Ray cluster: the same parts, as tasks that are done again where one is lost."""

from __future__ import annotations

import os
import pickle
import socket
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from ernie import __version__
from ernie.errors import UserError
from pretrain.corpus.engine import Broadcast

T = TypeVar("T")
R = TypeVar("R")

_RETRIES = 5  # of a task whose worker or node is lost
_TO_CONNECT = 10.0  # seconds
_AHEAD = 2  # tasks that `map` has in flight for each core


class RayEngine:
    """Tasks on the Ray cluster that RAY_ADDRESS names, else on one that runs on this machine, else on one of its own.

    A task takes one core, and at most `processes` are in flight; None stands for twice the cores that the cluster has.
    Tasks and results that are lost with a worker or a node are made again, five times at most.
    """

    def __init__(self, processes: int | None):
        try:
            import ray
        except ImportError:
            raise UserError("--engine ray: needs the package ray: pip install 'ernie-continual[ray]'") from None
        if processes is not None and processes < 1:
            raise UserError(f"--processes: with --engine ray expected at least 1, found {processes}")
        self._ray, self._processes = ray, processes
        self._is_own = not ray.is_initialized()
        if self._is_own:
            _check_reached(os.environ.get("RAY_ADDRESS", ""))
            try:
                ray.init(log_to_driver=False, logging_level="ERROR")
            except (ConnectionError, RuntimeError, ValueError) as error:
                why = f"the cluster cannot be reached: {_line(error)}. Its address is in RAY_ADDRESS"
                raise UserError(f"--engine ray: {why}") from None
        self._start = _Start(str(Path.cwd()), sys.path, ray.get_runtime_context().get_node_id(), __version__)
        self._call = ray.remote(num_cpus=1, max_retries=_RETRIES)(_call)

    def __enter__(self) -> RayEngine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._is_own:
            self._ray.shutdown()

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """As Engine.map.  Raises UserError where a task is lost too often."""
        pending: deque[Any] = deque()
        try:
            for item in items:
                pending.append(self._call.remote(self._start, function, item))
                if len(pending) >= self._most():
                    yield self._result(pending.popleft())
            while pending:
                yield self._result(pending.popleft())
        finally:
            for task in pending:
                self._ray.cancel(task, force=True)

    def broadcast(self, value: T) -> Broadcast[T]:
        """Pass a large object to all workers, through the cluster's object store."""
        return Broadcast(_load, self._ray.put(pickle.dumps(value, pickle.HIGHEST_PROTOCOL)), value)

    def _most(self) -> int:
        """Return how many tasks may be in flight, on the nodes that there are now."""
        return self._processes or max(1, round(_AHEAD * self._ray.cluster_resources().get("CPU", 0)))

    def _result(self, task: Any) -> Any:
        from ray.exceptions import RayError, RayTaskError

        try:
            return self._ray.get(task)
        except RayTaskError as error:
            if isinstance(error.cause, UserError):
                raise error.cause from None
            raise
        except RayError as error:
            raise UserError(
                f"--engine ray: a part of the work was lost {_RETRIES + 1} times ({_line(error)}); the usual reason is "
                "that memory ran out. Give the nodes more memory, or fewer cores"
            ) from None


def _check_reached(address: str) -> None:
    """Raise UserError if nobody listens at an address with a port: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not (host and port.isdecimal()):
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), _TO_CONNECT).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"--engine ray: there is no cluster at {address}, the address in RAY_ADDRESS ({error}). Start one there, "
            "or unset it to use one of this machine"
        ) from None


class _Start(NamedTuple):
    """What a worker needs to know of the process that gives it work: its folder, modules, node and version."""

    folder: str
    modules: list[str]
    node: str
    version: str


def _call(start: _Start, function: Callable[[T], R], item: T) -> R:
    import ray

    here = ray.get_runtime_context().get_node_id()
    try:
        if start.version != __version__:
            raise UserError(f"the version of ernie is {__version__}, and that of the command is {start.version}")
        if Path(start.folder).is_dir():  # where relative paths begin
            os.chdir(start.folder)
        sys.path.extend(place for place in start.modules if place not in sys.path)
        return function(item)
    except UserError as error:
        if here == start.node:
            raise
        raise UserError(f"on the node {ray.util.get_node_ip_address()}: {error}") from None


@lru_cache(maxsize=8)
def _load(reference: Any) -> Any:
    import ray

    return pickle.loads(ray.get(reference))


def _line(error: BaseException) -> str:
    return f"{' '.join(str(error).split()):.300}".rstrip(".")

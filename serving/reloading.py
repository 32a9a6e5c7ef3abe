"""Models are loaded, and replaced while requests go on: the new one is measured beside the old one, then swapped."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from time import perf_counter
from typing import TypeVar

from ernie.audio.convert import require
from ernie.errors import UserError, about
from ernie.runtime import release_free_memory
from inference.loading import load
from inference.precision import precision_of
from serving.config import ModelConfig
from serving.engine import Engine
from serving.examples import read_examples
from serving.models import Bases, ServedModel, serve_model
from serving.service import Service

_log = logging.getLogger("ernie.serving")
_POLL = 0.1  # seconds
T = TypeVar("T")


def load_model(
    name: str, config: ModelConfig, most_tokens: int, engine: Engine | None = None, bases: Bases | None = None
) -> ServedModel:
    """Load a model and measure it, on an engine if one runs; what it shares with others is in `bases`.

    Raises UserError, which names the model, also where a package is missing that its requests would need.
    """
    with about(f"models.{name}"):
        bases = bases or Bases()
        precision = precision_of(Path(config.path), config.precision) if config.base else config.precision
        base = bases.encoder(config.base, precision or "auto") if config.base else None
        face = load(config.path, precision, config.trust_plugins, base, **config.decoding)
        for package in face.packages:
            require(package)
        with about("examples"):
            examples = read_examples(config.examples, face)
        return serve_model(name, config.path, face, most_tokens, engine, examples, bases)


class Reloader:
    """Replaces models of a service; one at a time, since each needs its memory twice."""

    def __init__(self, service: Service, models: Mapping[str, ModelConfig], most_tokens: int):
        self._service, self._models, self._most_tokens = service, dict(models), most_tokens
        self._lock = asyncio.Lock()
        self._cleaning: set[asyncio.Task[None]] = set()

    async def reload(self, name: str) -> ServedModel:
        """Load a model again and serve it in place of the old one.  Raises UserError, and then keeps the old one."""
        self._service.model(name)
        return await self._replace(name, self._models[name])

    async def change(self, models: Mapping[str, ModelConfig]) -> None:
        """Load all these models, and drop the others; of one that fails the old one stays."""
        for name, config in models.items():
            try:
                await self._replace(name, config)
            except UserError:
                continue
        for name in [name for name in self._service.models if name not in models]:
            self._service.drop(name)
            self._models.pop(name, None)

    async def _replace(self, name: str, config: ModelConfig) -> ServedModel:
        async with self._lock:
            start = perf_counter()
            old = self._service.models.get(name)
            try:
                new = await _in_thread(
                    lambda: load_model(name, config, self._most_tokens, self._service.engine, self._service.bases)
                )
            except BaseException as error:
                self._service.failed_to_load(name)
                kept = "; the one before is still served" if old else ""
                if isinstance(error, UserError):
                    _log.error("the model '%s' was not loaded%s: %s", name, kept, error)
                    raise
                _log.exception("the model '%s' was not loaded%s", name, kept)
                raise UserError(f"models.{name}: {type(error).__name__} while it was loaded{kept}") from error
            self._service.put(new)
            self._models[name] = config
            _log.info("the model '%s' was loaded in %.2f s", name, perf_counter() - start)
        if old is not None:
            task = asyncio.ensure_future(self._clean(old))
            self._cleaning.add(task)
            task.add_done_callback(self._cleaning.discard)
        return new

    async def _clean(self, old: ServedModel) -> None:
        """Give a model's memory back after its last request."""
        while self._service.is_busy_with(old):
            await asyncio.sleep(_POLL)
        del old
        await _in_thread(release_free_memory)


async def _in_thread(function: Callable[[], T]) -> T:
    """Return what a function returns in a thread of its own, which does not keep the process from ending."""
    loop, future = asyncio.get_running_loop(), asyncio.get_running_loop().create_future()

    def tell(result: T | None, error: BaseException | None) -> None:
        if not future.done():
            future.set_exception(error) if error is not None else future.set_result(result)

    def run() -> None:
        result, failed = None, None
        try:
            result = function()
        except BaseException as error:
            failed = error if isinstance(error, Exception) else RuntimeError(repr(error))
        with suppress(RuntimeError):  # the event loop is closed
            loop.call_soon_threadsafe(tell, result, failed)

    await asyncio.to_thread(threading.Thread(target=run, name="load", daemon=True).start)  # which may take a while
    return await future

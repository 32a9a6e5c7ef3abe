"""When garbage is collected: while nobody waits for an answer.

A collection keeps all threads waiting, and it looks at every object of every request that waits: 600 of them took it
20 to 45 ms.  Requests leave no reference cycles behind (tests/serving/test_garbage.py), so that collections are needed
only for what is left by connections of WebSockets, by reloads and by libraries.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

_INTERVAL = 1.0  # seconds
_ENOUGH = 10_000  # new objects that are worth a collection of everything while nobody waits
_MANY = 15_000  # that are worth one of them alone, which takes a few milliseconds, whoever waits
_YOUNG, _EVERYTHING = 0, 2  # generations of Python's collector


async def collect_garbage(is_idle: Callable[[], bool]) -> None:
    """Collect garbage by and by, instead of Python, until the task is cancelled."""
    is_behind = False  # whether some objects have grown old that may be garbage
    gc.disable()
    try:
        while True:
            await asyncio.sleep(_INTERVAL)
            generation = due(gc.get_count()[0], is_behind, is_idle)
            if generation is not None:
                gc.collect(generation)
                is_behind = generation == _YOUNG
    finally:
        gc.enable()


def due(objects: int, is_behind: bool, is_idle: Callable[[], bool]) -> int | None:
    """Return the oldest generation to collect after so many new objects, None for nothing yet."""
    if (objects > _ENOUGH or is_behind) and is_idle():
        return _EVERYTHING
    return _YOUNG if objects > _MANY else None

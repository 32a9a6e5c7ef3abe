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
_ENOUGH = 20_000  # new objects that are worth a collection while nobody waits
_TOO_MANY = 2_000_000  # for which nobody can be spared any longer


async def collect_garbage(is_idle: Callable[[], bool]) -> None:
    """Collect garbage by and by, instead of Python, until the task is cancelled."""
    gc.disable()
    try:
        while True:
            await asyncio.sleep(_INTERVAL)
            if is_due(gc.get_count()[0], is_idle):
                gc.collect()
    finally:
        gc.enable()


def is_due(objects: int, is_idle: Callable[[], bool]) -> bool:
    """Return whether to collect after so many objects more than at the last collection."""
    return objects > _TOO_MANY or (objects > _ENOUGH and is_idle())

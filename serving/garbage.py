"""When garbage is collected: seldom, and while nobody waits for an answer.

A collection keeps all threads waiting, and one of all objects looks at those of every request that waits: for 600
requests it took 20 to 45 ms.  Requests, sessions and models leave no reference cycles behind
(tests/serving/test_garbage.py), so that such a collection is needed only for what libraries leave.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

_INTERVAL = 1.0  # seconds
_YOUNG = 1000  # new objects after which Python collects these alone, in less than a millisecond
_NEVER = 1 << 30
_ENOUGH = 1000  # collections of the young after which everything is collected while nobody waits
_TOO_MANY = 20_000  # after which nobody can be spared any longer


async def collect_garbage(is_idle: Callable[[], bool]) -> None:
    """Collect old garbage by and by, instead of Python, until the task is cancelled."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()  # what is there stays: collections that skip it are short
    gc.set_threshold(_YOUNG, _NEVER, _NEVER)
    try:
        while True:
            await asyncio.sleep(_INTERVAL)
            if is_due(gc.get_count()[1], is_idle):
                gc.collect()
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def is_due(collections: int, is_idle: Callable[[], bool]) -> bool:
    """Return whether to collect everything after so many collections of the young."""
    return collections > _TOO_MANY or (collections > _ENOUGH and is_idle())

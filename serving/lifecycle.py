"""How a server ends: it says so, goes on for a while, refuses what is new, and answers what waits."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from time import monotonic

_log = logging.getLogger("ernie.serving")
_POLL = 0.02  # seconds
# Seconds in which a second signal is the same as the first: timeout(1) and others signal a process and its group.
SAME_SIGNAL = 0.3
Hook = Callable[[float], Awaitable[None]]


class Phase(Enum):
    """What a server does: it serves, it leaves while balancers still send requests, or it drains."""

    SERVING = "serving"
    LEAVING = "leaving"
    DRAINING = "draining"


class Lifecycle:
    """The phase of a server, and how many calls are open: requests that are not answered, and connected sessions."""

    def __init__(self) -> None:
        self.phase = Phase.SERVING
        self.open = 0
        self._hooks: list[Hook] = []

    def on_drain(self, hook: Hook) -> None:
        """Have a function called when the drain begins, with the seconds until its end.

        Sessions give out their states there.  What does not return in time is cancelled.
        """
        self._hooks.append(hook)

    async def leave(self, grace: float, drain: float) -> int:
        """Go through the phases; return how many calls are still open at the end.

        For `grace` seconds everything is accepted, but the server is not ready.  Then what is new is refused, and the
        open calls have `drain` seconds to end.
        """
        self.phase = Phase.LEAVING
        await asyncio.sleep(grace)
        self.phase = Phase.DRAINING
        end = monotonic() + drain
        hooks = [asyncio.ensure_future(hook(drain)) for hook in self._hooks]
        while (self.open or not all(hook.done() for hook in hooks)) and monotonic() < end:
            await asyncio.sleep(_POLL)
        for hook in hooks:
            hook.cancel()
        for found in await asyncio.gather(*hooks, return_exceptions=True):
            if isinstance(found, Exception):
                _log.error("what was to be done before the end has failed", exc_info=found)
        return self.open

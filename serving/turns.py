"""Turns of the event loop: what many clients want at the same moment is done for a few of them at a time.

Between two turns the loop reads, writes, and lets everyone else go on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from starlette.types import ASGIApp, Receive, Scope, Send


class Turns:
    """Runs functions in the event loop, at most `most` in a turn, in the order in which they come."""

    def __init__(self, most: int):
        self._most, self._used = most, 0
        self._waiting = deque[Callable[[], None]]()

    def run(self, functions: Iterable[Callable[[], None]]) -> None:
        """Run functions, those for which there is no room any more in later turns."""
        self._waiting.extend(functions)
        self._run_some()

    async def take(self) -> None:
        """Return at once while there is room in this turn, else in a later one."""
        if self._waiting or self._used >= self._most:
            future = asyncio.get_running_loop().create_future()
            self._waiting.append(lambda: None if future.done() else future.set_result(None))
            await future
        else:
            self._begin()

    def _begin(self) -> None:
        """Count something in this turn."""
        if not self._used:
            asyncio.get_running_loop().call_soon(self._next)
        self._used += 1

    def _next(self) -> None:
        self._used = 0
        self._run_some()

    def _run_some(self) -> None:
        while self._waiting and self._used < self._most:
            self._begin()
            self._waiting.popleft()()


class InTurns:
    """An ASGI application that begins few calls in a turn."""

    def __init__(self, app: ASGIApp, most: int):
        self._app, self._turns = app, Turns(most)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._turns.take()
        await self._app(scope, receive, send)

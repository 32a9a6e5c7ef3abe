"""A session of which a handler of HTTP is the client: it puts input in, and waits for the output."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

from serving.sessions import Event, ServedStream, Session, Sessions


class Exchange:
    """A session, open until `close`.  All methods are called in the event loop.  Raises TooManySessions."""

    def __init__(self, sessions: Sessions, streams: Sequence[ServedStream], client: str, bulk: bool = False):
        self.session: Session = sessions.open(streams, client, bulk)
        self._changed = asyncio.Event()
        self._feeding: asyncio.Task[None] | None = None
        self.session.notify = self._changed.set

    async def put(self, piece: Any) -> None:
        """Put a piece of input in, once little enough waits."""
        while not self.session.takes_more:
            await self.changed()
        self.session.put(piece)

    async def changed(self) -> None:
        """Wait for a step."""
        self._changed.clear()
        await self._changed.wait()

    def feed(self, source: Callable[[], Awaitable[Any]]) -> None:
        """Put in what `source` returns, piece by piece until that is None; what it raises ends the output."""

        async def go_on() -> None:
            try:
                while (piece := await source()) is not None:
                    await self.put(piece)
                self.session.end()
            except Exception as error:
                self.session.tell(Event("error", error))

        self._feeding = asyncio.ensure_future(go_on())

    async def available(self) -> tuple[list[Any], bool]:
        """Return the output that the input so far allows, and whether there will be no more.

        Raises the session's error.
        """
        found, is_idle = list[Any](), False
        while not is_idle:
            is_idle = self.session.is_idle
            while (event := self.session.take_event()) is not None:
                if event.kind == "error":
                    raise event.value
                if event.kind == "done":
                    return found, True
                if event.kind == "output":
                    found.append(event.value)
                self.session.sent(event)
                is_idle = False
            if not is_idle and not self.session.is_idle:
                await self.changed()
        return found, False

    async def outputs(self) -> AsyncGenerator[Any, None]:
        """Yield the output as it is made, to the end.  Raises the session's error."""
        while True:
            while (event := self.session.take_event()) is not None:
                if event.kind == "error":
                    raise event.value
                if event.kind == "done":
                    return
                if event.kind == "output":
                    yield event.value
                self.session.sent(event)
            await self.changed()

    def close(self) -> None:
        """Free everything."""
        if self._feeding is not None:
            self._feeding.cancel()
        self.session.close()

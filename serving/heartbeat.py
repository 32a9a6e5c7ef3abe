"""A heartbeat of the event loop, which shows how long anything has kept it from everything else."""

from __future__ import annotations

import asyncio
from time import perf_counter

_INTERVAL = 0.005  # seconds between two beats
_WINDOW = 60.0  # seconds


class Heartbeat:
    """Beats every `interval` seconds while it runs; `largest` is the most that a beat was late, in seconds.

    A window of time forgets what was more than two of it ago.  A benchmark beats every millisecond, without a window.
    """

    def __init__(self, interval: float = _INTERVAL, window: float = _WINDOW):
        self._interval, self._window = interval, window
        self._current = self._before = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def largest(self) -> float:
        """The most that a beat was late."""
        return max(self._current, self._before)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to beat in this event loop."""
        self._loop = loop
        self._since = self._last = perf_counter()
        self._timer = loop.call_later(self._interval, self._beat)

    def stop(self) -> None:
        """Beat no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        now = perf_counter()
        self._current = max(self._current, now - self._last - self._interval)
        self._last = now
        if now - self._since > self._window:
            self._before, self._current, self._since = self._current, 0.0, now
        self._timer = self._loop.call_later(self._interval, self._beat)

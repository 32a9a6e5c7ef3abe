"""SIGTERM and Ctrl-C end a run after the step in progress, saved."""

from __future__ import annotations

import signal
from types import FrameType, TracebackType

from ernie.train.log import Log

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupt:
    """While open, the first SIGTERM or Ctrl-C sets `asked`; a second one acts as it does elsewhere."""

    def __init__(self, log: Log):
        self.asked = False
        self._log = log
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Interrupt:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._restore()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        self._restore()
        self._log.say(f"{signal.Signals(number).name}: finishing this step and saving (again to stop at once)")

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

"""Deferred handling of SIGTERM, Ctrl-C and SIGHUP until the end of a training step.

An exception raised in the middle of a step would come out of Paddle's C++ as a different error.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

from ernie.runtime import SIGHUP, ending_signals, leave_terminal


class Interrupt:
    """Context manager in which the first ending signal sets `asked`; a second one acts as it does outside.

    If `patient`, repeated signals are ignored.  Several processes have to agree when to stop, and Paddle's launcher
    signals each of them three times.  A repeated SIGHUP is always ignored: the shell and the kernel both send one.

    `say` is called with a message that contains `meaning`: what happens next.  Outside the main thread, which alone may
    handle signals, nothing is changed.
    """

    def __init__(self, say: Callable[[str], None], meaning: str, *, patient: bool = False):
        self.asked: signal.Signals | None = None
        self._patient = patient
        self._say = say
        self._meaning = meaning
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            for number in map(signal.Signals, ending_signals()):
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._restore()

    def act(self) -> None:
        """Between two steps, raise the pending signal (SIGTERM if another process got it) with its usual effect."""
        self._restore()
        number = self.asked or signal.SIGTERM
        if signal.getsignal(number) == signal.SIG_IGN:  # a shell ignores Ctrl-C for what a script starts with `&`
            raise KeyboardInterrupt
        signal.raise_signal(number)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        leave_terminal()
        if self._patient or number == SIGHUP:
            if self.asked is None:
                self._say(f"{signal.Signals(number).name}: {self._meaning}")
            self.asked = signal.Signals(number)
            return
        self.asked = signal.Signals(number)
        self._restore()
        self._say(f"{self.asked.name}: {self._meaning} (again to stop at once)")

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]

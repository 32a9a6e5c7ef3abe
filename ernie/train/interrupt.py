"""SIGTERM, Ctrl-C and the end of a terminal wait for the end of a training step.

An exception in the middle of one would come out of Paddle's C++ as an error of another kind.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

from ernie.runtime import HANG_UP, ending_signals, leave_terminal


class Interrupt:
    """While open, the first of these signals sets `asked`; a second one acts as it does elsewhere.

    Not so where `patient`: several processes have to agree, and Paddle's launcher asks each of them three times.  Nor
    does the end of a terminal, which is told twice, by the shell and by the kernel.

    `say` is told what happens, which `meaning` puts in words.  Outside the main thread, which alone may handle
    signals, nothing is changed.
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
        """Between two steps: let the signal that has come, perhaps to another process, act as it does elsewhere."""
        self._restore()
        number = self.asked or signal.SIGTERM
        if signal.getsignal(number) == signal.SIG_IGN:  # as a shell has Ctrl-C for what a script starts with `&`
            raise KeyboardInterrupt
        signal.raise_signal(number)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        leave_terminal()
        if self._patient or number == HANG_UP:
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

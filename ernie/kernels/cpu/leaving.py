"""A clean end of the interpreter while daemon threads compute.

Python ends a thread that comes back from C++ after the interpreter has gone by unwinding its stack, which Paddle's C++
does not survive: the process aborts.  So at exit threads stop at their next kernel, and the interpreter waits for them.
"""

from __future__ import annotations

import atexit
import threading
import time
from weakref import WeakSet

_WAIT = 5.0  # seconds at most: longer than most kernels take
_callers: WeakSet[threading.Thread] = WeakSet()  # the threads that have run a kernel
_known = threading.local()  # .caller: whether this thread is one of them
_stopped: set[int] = set()
_leaving = 0  # the thread that ends the interpreter, once it does


def enter() -> None:
    """Note that this thread runs a kernel; at exit, stop it instead."""
    if _leaving and threading.get_ident() != _leaving:
        _stopped.add(threading.get_ident())
        threading.Event().wait()  # until the process ends
    if not hasattr(_known, "caller"):
        _known.caller = True
        _callers.add(threading.current_thread())


@atexit.register
def _leave() -> None:
    global _leaving
    _leaving = threading.get_ident()
    deadline = time.monotonic() + _WAIT
    while time.monotonic() < deadline:
        running = {thread.ident for thread in _callers if thread.is_alive()} - _stopped - {_leaving}
        if not running:
            return
        time.sleep(0.005)

"""A process that trains trials of a run for another one: see side_by_side.

It is a script, with three arguments: the number of its socket, the run's folder, and the run's identity.  The end of
what it reads while it trains means that the other process is gone: it then saves, and ends.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from types import FrameType
from typing import Any

_ENDED = 128 + signal.SIGTERM


def _end(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


class Orders:
    """The trials that another process gives to this one."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel, self._names = channel, SimpleQueue[str]()
        self._is_busy = threading.Event()
        threading.Thread(target=self._read, daemon=True, name="orders").start()

    def _read(self) -> None:
        with self._channel.makefile("r", encoding="utf-8") as lines:
            for line in lines:
                self._is_busy.set()
                self._names.put(line.rstrip("\n"))
        self._names.put("")
        if self._is_busy.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    def take(self) -> str:
        """Return the name of the next trial, "" if there will be none."""
        return self._names.get()

    def answer(self, **answer: Any) -> None:
        """Tell what became of the trial taken last."""
        self._is_busy.clear()
        self._channel.sendall(f"{json.dumps(answer)}\n".encode())


def work(orders: Orders, prepare: Callable[[], Callable[[str], None]]) -> None:
    """Train the trials that are ordered until there are no more; an error is the answer, and the end."""
    from ernie.errors import UserError

    try:
        train = prepare()
        while name := orders.take():
            train(name)
            orders.answer(done=name)
    except UserError as error:
        orders.answer(error=str(error), status=error.status)


def main() -> int:
    """Work until there are no more orders; return the exit status."""
    descriptor, folder, identity = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda number, frame: os._exit(_ENDED))  # there is nothing to save yet
    try:
        orders = Orders(socket.socket(fileno=int(descriptor)))
        from ernie.runtime import require_paddle
        from ernie.terminal import plain_warnings

        require_paddle()
        from finetune.train.run import prepare_worker
        from finetune.train.run_contents import training_trials

        signal.signal(signal.SIGTERM, _end)
        with plain_warnings(), training_trials(Path(folder)):
            work(orders, lambda: prepare_worker(Path(folder), identity))
    except KeyboardInterrupt:
        return _ENDED
    return 0


if __name__ == "__main__":
    sys.path.pop(0)  # this folder, whose modules would shadow others of the same name
    status = main()
    # Without the functions that Paddle calls at an ordinary exit, in which a signal would be a traceback.
    sys.stderr.flush()
    os._exit(status)

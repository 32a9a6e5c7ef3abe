"""What Paddle's launcher starts, which takes the path of a program: the module named first, with a log of its own.

Standard input is a pipe from the command, which ends when the command was asked to end, or has died: this process then
gets a SIGTERM.  Paddle's launcher would send one, too, and kill 30 seconds later what may still be saving.
"""

import os
import runpy
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType


def _follow(command: int, launcher: int) -> None:
    os.read(command, 1)
    os.kill(os.getpid(), signal.SIGTERM)  # raise_signal would not wake the main thread
    while os.getppid() == launcher:
        time.sleep(0.1)
    os._exit(128 + signal.SIGKILL)  # the launcher was killed, so that all end at once


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.path.pop(0)  # this folder, whose modules would hide others of their names
    rank, folder = os.environ["PADDLE_TRAINER_ID"], Path(os.environ["ERNIE_RANK_LOGS"])
    log = folder / f"rank-{rank}.log"
    for file, number in ((folder / "results" if rank == "0" else log, 1), (log, 2)):
        with file.open("ab") as opened:
            os.dup2(opened.fileno(), number)
    signal.signal(signal.SIGTERM, _end)
    threading.Thread(target=_follow, args=(os.dup(0), os.getppid()), daemon=True, name="command").start()
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    import ernie  # noqa: F401 - before anyone imports Paddle, which it sets up

    status = 0
    try:
        runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, str):  # which Python prints
            raise
        status = end.code or 0
    # All is done.  What Paddle and Gloo take down at an ordinary exit, threads and connections in no certain order, has
    # aborted a process here that had nothing left to do, and with it the run.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)

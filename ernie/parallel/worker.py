"""The script that Paddle's launcher starts for each rank: runs the module named first, logging to the rank's own file.

Standard input is a pipe from the command.  The pipe closes when the command was asked to end, or has died.  This
process then sends itself a SIGTERM.  Paddle's launcher would also send one, but kill the process 30 seconds later even
if it is still saving.
"""

import os
import runpy
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType


def _watch_pipe(pipe: int, launcher: int) -> None:
    os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGTERM)  # raise_signal would not wake the main thread
    while os.getppid() == launcher:
        time.sleep(0.1)
    os._exit(128 + signal.SIGKILL)  # the launcher was killed, to end all processes at once


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.path.pop(0)  # this folder, whose modules would shadow others of the same name
    rank, folder = os.environ["PADDLE_TRAINER_ID"], Path(os.environ["ERNIE_RANK_LOGS"])
    log = folder / f"rank-{rank}.log"
    for file, number in ((folder / "results" if rank == "0" else log, 1), (log, 2)):
        with file.open("ab") as opened:
            os.dup2(opened.fileno(), number)
    signal.signal(signal.SIGTERM, _end)
    threading.Thread(target=_watch_pipe, args=(os.dup(0), os.getppid()), daemon=True, name="command").start()
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    import ernie  # noqa: F401 - sets Paddle up, so must come before any import of Paddle

    status = 0
    try:
        runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, str):  # Python prints it
            raise
        status = end.code or 0
    # At an ordinary exit Paddle and Gloo tear down threads and connections in no particular order, which has aborted
    # processes that were already done, and with them the run.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)

"""What Paddle's launcher starts, which takes the path of a program: the module named first, with a log of its own."""

import os
import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.pop(0)  # this folder, whose modules would hide others of their names
    if "ERNIE_RANK_LOGS" in os.environ:
        rank, folder = os.environ["PADDLE_TRAINER_ID"], Path(os.environ["ERNIE_RANK_LOGS"])
        log = folder / f"rank-{rank}.log"
        for file, number in ((folder / "results" if rank == "0" else log, 1), (log, 2)):
            with file.open("ab") as opened:
                os.dup2(opened.fileno(), number)
    import ernie  # noqa: F401 - before anyone imports Paddle, which it sets up

    try:
        runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if end.code:
            raise
    # All is done.  What Paddle and Gloo take down at an ordinary exit, threads and connections in no certain order, has
    # aborted a process here that had nothing left to do, and with it the run.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)

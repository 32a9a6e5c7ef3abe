"""What Paddle's launcher starts, which takes the path of a program: the command `ernie`, with a log of its own."""

import os
import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.pop(0)  # this folder, whose modules would hide others of their names
    if "ERNIE_RANK_LOGS" in os.environ:
        log = Path(os.environ["ERNIE_RANK_LOGS"]) / f"rank-{os.environ['PADDLE_TRAINER_ID']}.log"
        with log.open("ab") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
    runpy.run_module("ernie.cli", run_name="__main__", alter_sys=True)

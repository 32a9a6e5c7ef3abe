"""The script that Paddle's launcher starts for each rank: runs the module named first, logging to the rank's own file.

Standard input is a pipe from the command.  The pipe closes when the command was asked to end, or has died.  This
process then sends itself a SIGTERM.  Paddle's launcher would also send one, but kill the process 30 seconds later even
if it is still saving.
"""

import json
import os
import runpy
import signal
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any


def _watch_pipe(pipe: int, launcher: int) -> None:
    os.read(pipe, 1)
    os.kill(os.getpid(), signal.SIGTERM)  # raise_signal would not wake the main thread
    while os.getppid() == launcher:
        time.sleep(0.1)
    os._exit(128 + signal.SIGKILL)  # the launcher was killed, to end all processes at once


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


def _join(team: dict[str, Any]) -> None:
    """Take a rank among the processes of all machines: Paddle's launcher has started those of this one alone."""
    from ernie.parallel.machines import interfaces

    each, local = int(os.environ["PADDLE_TRAINERS_NUM"]), int(os.environ["PADDLE_TRAINER_ID"])
    addresses, port = team["addresses"], team["port"]
    rank = team["index"] * each + local
    endpoints = [f"{address}:{port + 1 + number}" for address in addresses for number in range(each)]
    ranks = {"TRAINER_ID": rank, "GLOBAL_RANK": rank, "TRAINERS_NUM": len(endpoints), "GLOBAL_SIZE": len(endpoints)}
    os.environ.update({f"PADDLE_{name}": str(value) for name, value in ranks.items()})
    os.environ["PADDLE_NNODES"] = str(len(addresses))
    os.environ["PADDLE_MASTER"] = f"{addresses[0]}:{port}"
    os.environ["COLLECTIVE_MASTER_IP"] = addresses[0]
    os.environ["PADDLE_TRAINER_ENDPOINTS"] = ",".join(endpoints)
    os.environ["PADDLE_CURRENT_ENDPOINT"] = endpoints[rank]
    own = [name for name, address in interfaces().items() if address == addresses[team["index"]]]
    if own and len(addresses) > 1:  # by a machine's name they may find its loopback interface
        os.environ.setdefault("GLOO_SOCKET_IFNAME", own[0])
        os.environ.setdefault("NCCL_SOCKET_IFNAME", own[0])


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

    if "ERNIE_TEAM" in os.environ:
        _join(json.loads(os.environ["ERNIE_TEAM"]))
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

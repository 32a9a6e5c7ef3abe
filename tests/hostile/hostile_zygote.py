"""A process that has imported Paddle and runs `ernie` command lines in forks of itself, within bounds.

It reads one JSON object a line from standard input, {folder, words, out, err, seconds, megabytes}, and answers each
with a line, {status, seconds}.  The status is the command's exit status, "traceback", "no end" (killed at the
deadline), or the negative number of the signal that killed it.  A fork costs a few milliseconds, where an interpreter
that imports Paddle costs seconds.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, NoReturn

TRACEBACK = 70  # the status of a command that an exception ended: none of ours


def main() -> None:
    """Answer every line of standard input."""
    import finetune.run  # noqa: F401 - Paddle, and most of the library

    for line in sys.stdin:
        asked = json.loads(line)
        began = time.monotonic()
        child = os.fork()
        if not child:
            _run(asked)
        status = _status(child, began + asked["seconds"])
        print(json.dumps({"status": status, "seconds": time.monotonic() - began}), flush=True)


def _run(asked: dict[str, Any]) -> NoReturn:
    """Run a command in this process and end it."""
    status = TRACEBACK
    try:
        os.chdir(asked["folder"])
        for path, number in ((os.devnull, 0), (asked["out"], 1), (asked["err"], 2)):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), number)
        sys.stdin = open(0, encoding="utf-8")  # noqa: SIM115 - for the rest of this process
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        limit = now + asked["megabytes"] * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CPU, (asked["seconds"], asked["seconds"]))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        from ernie.cli import main as ernie

        status = ernie(asked["words"])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _status(child: int, deadline: float) -> int | str:
    """Wait for a child, killed at the deadline, and return how it ended."""
    while True:
        pid, how = os.waitpid(child, os.WNOHANG)
        if pid:
            status = os.waitstatus_to_exitcode(how)
            return "traceback" if status == TRACEBACK else status
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "no end"
        time.sleep(0.005)


if __name__ == "__main__":
    main()

"""A process that has imported Paddle and runs `ernie` command lines in forks of itself, within bounds.

It reads one JSON object a line from standard input, {folder, words, out, err, seconds, megabytes, around}, and answers
each with a line, {status, seconds}.  `around` is a case.Around.  The status is the command's exit status,
"traceback", "no end" (killed at the deadline), or the negative number of the signal that killed it.  A fork costs a few
milliseconds, where an interpreter that imports Paddle costs seconds.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

TRACEBACK = 70  # the status of a command that an exception ended: none of ours
_STREAMS = ((0, "r", "strict"), (1, "w", "strict"), (2, "w", "backslashreplace"))
_CLONE_NEWNS, _MS_PRIVATE = 0x20000, 0x44000  # see unshare(2); private and recursive, see mount(2)
_CAPABILITY_VERSION_3 = 0x20080522


def main() -> None:
    """Answer every line of standard input."""
    import ernie.cli  # noqa: F401 - before files are limited
    import finetune.train.run  # noqa: F401 - Paddle, and most of the library

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
    status, around = TRACEBACK, asked["around"]
    try:
        os.chdir(asked["folder"])
        _open_streams(asked, around["encoding"], around["closed"])
        os.environ.update(around["environment"])
        if around["disk_bytes"]:
            _mount_small_disk(around["disk_bytes"])
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        _limit(resource.RLIMIT_AS, now + asked["megabytes"] * 2**20)
        _limit(resource.RLIMIT_CPU, asked["seconds"])
        _limit(resource.RLIMIT_CORE, 0)
        if around["file_bytes"]:
            _limit(resource.RLIMIT_FSIZE, around["file_bytes"])
        if around["open_files"]:
            _limit(resource.RLIMIT_NOFILE, around["open_files"])
        _drop_capabilities()
        from ernie.cli import main as ernie

        status = ernie(asked["words"])
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, OSError, ValueError):  # it is closed, or its reader is gone
                stream.flush()
        os._exit(status)


def _open_streams(asked: dict[str, Any], encoding: str, closed: list[int]) -> None:
    """Open the three standard streams as the interpreter does at its start, those that are `closed` as None."""
    for path, number in ((os.devnull, 0), (asked["out"], 1), (asked["err"], 2)):
        if number in closed:
            os.close(number)
        else:
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), number)
    streams = [None if n in closed else open(n, mode, encoding=encoding, errors=e) for n, mode, e in _STREAMS]  # noqa: SIM115, PTH123
    sys.stdin, sys.stdout, sys.stderr = streams  # type: ignore[assignment]


def _limit(what: int, most: int) -> None:
    resource.setrlimit(what, (most, most))


def _mount_small_disk(size: int) -> None:
    """Mount a disk of `size` bytes at the folder `disk`, which only this process sees.  It must be root's."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.unshare(_CLONE_NEWNS) == 0, os.strerror(ctypes.get_errno())
    assert libc.mount(None, b"/", None, _MS_PRIVATE, None) == 0, os.strerror(ctypes.get_errno())
    Path("disk").mkdir()
    assert libc.mount(b"none", b"disk", b"tmpfs", 0, f"size={size}".encode()) == 0, os.strerror(ctypes.get_errno())


def _drop_capabilities() -> None:
    """Make the system heed the permissions of files, which it does not for root."""
    if sys.platform == "linux":
        header, none = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
        assert ctypes.CDLL(None).capset(header, none) == 0


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

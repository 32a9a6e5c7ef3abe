"""Run Python programs in forks of a process that has imported Paddle and this library, which takes seconds each time.

`python()` is the beginning of a command line, in place of an interpreter's: what follows is a program and its words, or
`-m` and a module.  The process that it starts passes its open files, folder and environment to a server, which forks;
it passes signals on, and ends as the fork does.  When it is killed, so is the fork.

This file is both: `forked.py serve SOCKET` is the server, `forked.py run SOCKET WORDS` the process in its place.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

_MOST_FILES, _ASIDE = 16, 500  # that a program inherits; a number above theirs
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def python(threads: int | None = None, *, fresh: bool = False) -> list[str]:
    """Return the command of an interpreter that computes with so many threads, by default one for each core.

    A `fresh` one is no fork: it reads the number of threads itself, and starts and ends as Python has it.
    """
    if fresh:
        return [sys.executable]
    return [sys.executable, "-I", "-S", __file__, "run", _server(str(threads or ""))]


def interpreter() -> str:
    """Return an executable that stands for the interpreter of the machine's threads, or of one if the caller says so.

    A program that finds it in FORKED_PYTHON has it as `sys.executable`, so that what it starts are forks, too.
    """
    global _interpreter
    if _interpreter is None:
        import tempfile

        folder = tempfile.TemporaryDirectory(prefix="forked-")
        run, path = f"{sys.executable} -I -S {__file__} run", Path(folder.name) / "python"
        path.write_text(
            f'#!/bin/sh\ncase "$1" in -m|-u|*.py) ;; *) exec {sys.executable} "$@" ;; esac\n'
            f'case "$OMP_NUM_THREADS" in 1) socket={_server("1")} ;; *) socket={_server("")} ;; esac\n'
            f'exec {run} "$socket" "$@"\n',
            encoding="utf-8",
        )
        path.chmod(0o700)
        _interpreter = str(path), folder
    return _interpreter[0]


_interpreter: tuple[str, object] | None = None


def _server(threads: str) -> str:
    """Start a server, unless there is one, and return its socket."""
    if threads not in _servers:
        import atexit
        import subprocess
        import tempfile

        folder = tempfile.TemporaryDirectory(prefix="forked-")
        path = str(Path(folder.name) / "socket")
        # OpenMP reads the number of threads once, perhaps as it is imported.
        environment = {**os.environ, **({"OMP_NUM_THREADS": threads} if threads else {})}
        process = subprocess.Popen([sys.executable, __file__, "serve", path], env=environment, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        atexit.register(process.kill)
        _servers[threads] = path, folder
    return _servers[threads][0]


_servers: dict[str, tuple[str, object]] = {}


def _run(path: str, words: list[str]) -> None:
    """Have the server run a program, and end as it does."""
    files = _inherited()
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    asked = {"words": words, "folder": str(Path.cwd()), "environment": dict(os.environ), "files": files}
    content = json.dumps(asked).encode()
    socket.send_fds(server, [len(content).to_bytes(8, "big")], files)
    server.sendall(content)
    for file in files[3:]:
        os.close(file)
    answers = server.makefile()
    fork = int(answers.readline())
    for number in _PASSED_ON:
        signal.signal(number, lambda which, _: os.kill(fork, which))
    status = int(answers.readline())
    if status < 0:
        if -status != signal.SIGKILL:  # of which nothing else can be made
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    sys.exit(status)


def _inherited() -> list[int]:
    """Return the standard streams, and what else is open that is not this process's own."""
    found = []
    for file in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # that of the folder is closed by now
            if os.get_inheritable(number := int(file.name)) and number > 2:
                found.append(number)
    return [0, 1, 2, *found]


def _serve(path: str) -> list[str]:
    """Fork for everyone who connects; return the words of the program in the fork that is to run it."""
    import gc
    import multiprocessing.process

    import paddle.distributed.fleet  # noqa: F401
    import scipy.stats  # noqa: F401  as metrics do at first use
    import sklearn.metrics  # noqa: F401

    import ernie.cli  # noqa: F401
    import finetune.report.write  # with Matplotlib
    import finetune.train.run  # noqa: F401
    import pretrain.run  # noqa: F401
    import serving.run  # noqa: F401

    del sys.modules["ernie.cli"]  # which programs run as a main module
    gc.collect()
    gc.freeze()  # else collecting garbage would copy all memory to every fork
    found = sys.path[1:]  # without the folder of this file
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    print("ready", flush=True)
    while True:
        caller, _ = listener.accept()
        if not os.fork():
            break
        caller.close()
    listener.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    length, received, _, _ = socket.recv_fds(caller, 8, _MOST_FILES)
    asked = json.loads(caller.makefile("rb").read(int.from_bytes(length, "big")))
    if fork := os.fork():
        _watch(fork, caller)
    caller.close()
    _place(received, asked["files"])
    os.chdir(asked["folder"])
    multiprocessing.process.ORIGINAL_DIR = asked["folder"]  # where spawned processes look for the program
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.path = [*os.environ.get("PYTHONPATH", "").split(os.pathsep), *found]
    return asked["words"]


def _place(received: list[int], numbers: list[int]) -> None:
    """Give the files that came from the caller the numbers that they have there."""
    import fcntl

    aside = [fcntl.fcntl(file, fcntl.F_DUPFD, _ASIDE) for file in received]
    for file in received:
        os.close(file)
    for file, number in zip(aside, numbers, strict=True):
        assert number <= 2 or not Path(f"/proc/self/fd/{number}").exists(), f"the file {number} is this process's own"
        os.dup2(file, number)
        os.close(file)


def _watch(fork: int, caller: socket.socket) -> None:
    """Tell the caller how a fork ends, or kill it when the caller has gone, and end this process."""
    import select

    caller.sendall(f"{fork}\n".encode())
    handle = os.pidfd_open(fork)
    if caller in select.select([handle, caller], [], [])[0]:
        os.kill(fork, signal.SIGKILL)
    _, how = os.waitpid(fork, 0)
    with suppress(OSError):  # it has gone
        caller.sendall(f"{os.waitstatus_to_exitcode(how)}\n".encode())
    os._exit(0)


def _execute(words: list[str]) -> None:
    """Run a program as the interpreter does."""
    import random
    import runpy

    random.seed()
    sys.executable = os.environ.get("FORKED_PYTHON", sys.executable)
    if words[0] == "-u":  # their buffers are flushed at every write
        words = words[1:]
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(write_through=True)  # type: ignore[union-attr]
    if words[0] == "-m":
        sys.argv, sys.path[:0] = words[1:], [""]
        sys.modules.pop(words[1], None)  # of which a new interpreter knows nothing either
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[:0] = words, [str(Path(words[0]).resolve().parent)]
        runpy.run_path(words[0], run_name="__main__")


def _status(words: list[str]) -> int:
    """Run a program, and return its exit status."""
    import traceback

    try:
        _execute(words)
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _end(status: int) -> NoReturn:
    """End this fork in the way of the interpreter, but for taking apart all modules, which takes seconds."""
    import atexit
    import threading

    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            status = status or 120  # as the interpreter
    os._exit(status)


if __name__ == "__main__":
    if sys.argv[1] == "run":
        _run(sys.argv[2], sys.argv[3:])
    else:
        _end(_status(_serve(sys.argv[2])))

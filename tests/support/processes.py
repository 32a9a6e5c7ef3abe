"""Run commands in separate processes, for tests of signals and pipes."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Timer

from support import forked
from support.helpers import ROOT


def run_ernie(words: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `ernie` with these words to its end in a folder that is on its Python path.

    It is a fork, and so are the processes that it starts.
    """
    return subprocess.run(
        [*forked.python(), "-m", "ernie.cli", *words],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)]),
            "FORKED_PYTHON": forked.interpreter(),
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=150,
    )


@contextmanager
def start_ernie(words: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start `ernie` with these words and pipes of bytes for its three streams; it is killed after a minute."""
    process = subprocess.Popen(
        [*forked.python(), "-m", "ernie.cli", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    timer = Timer(60, process.kill)
    timer.start()
    try:
        with process:
            yield process
    finally:
        timer.cancel()


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Wait until the condition holds, failing if the process exits before."""
    while not condition():
        assert process.poll() is None, process.communicate()[1].decode()
        time.sleep(0.05)


def processes_in(folder: Path, word: str) -> list[int]:
    """The numbers of the processes that work in a folder and have this word in their command."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            if word.encode() in (process / "cmdline").read_bytes() and (process / "cwd").readlink() == folder:
                found.append(int(process.name))
    return found

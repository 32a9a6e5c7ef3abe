"""Commands in processes of their own, for tests of signals and pipes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer

from helpers import ROOT


def run_ernie(words: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`ernie` with these words, run to its end in a folder, whose modules it finds."""
    return subprocess.run(
        [sys.executable, "-m", "ernie.cli", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)]), **environment},
        capture_output=True,
        text=True,
        timeout=150,
    )


@contextmanager
def started(words: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """`ernie` with these words, its three streams being pipes of bytes; what hangs is ended after a minute."""
    process = subprocess.Popen(
        [sys.executable, "-m", "ernie.cli", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    ending = Timer(60, process.kill)
    ending.start()
    try:
        with process:
            yield process
    finally:
        ending.cancel()


def wait_until(true: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Wait until something is true, which a process that goes on shall bring about."""
    while not true():
        assert process.poll() is None, process.communicate()[1].decode()
        time.sleep(0.05)

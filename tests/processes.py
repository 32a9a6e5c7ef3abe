"""Commands in processes of their own, for tests of signals and pipes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from helpers import ROOT


def started(words: list[str], folder: Path) -> subprocess.Popen[bytes]:
    """`ernie` with these words, its three streams being pipes of bytes."""
    return subprocess.Popen(
        [sys.executable, "-m", "ernie.cli", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def wait_until(true: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    """Wait until something is true, which a process that goes on shall bring about."""
    for _ in range(1200):
        if true():
            return
        assert process.poll() is None, process.communicate()[1].decode()
        time.sleep(0.05)
    process.kill()
    raise AssertionError("it did not get there in a minute")

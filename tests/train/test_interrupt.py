"""What asks a run to end, and the terminal that goes while it is at work."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import ROOT

from ernie.runtime import ending_signals
from ernie.train.interrupt import Interrupt

AT_A_TERMINAL = """
import fcntl, sys, termios, time
from pathlib import Path
from ernie.train.interrupt import Interrupt

fcntl.ioctl(0, termios.TIOCSCTTY, 0)
with Interrupt(lambda sentence: print(sentence, flush=True), "saving") as interrupt:
    Path("begun").touch()
    while interrupt.asked is None:
        time.sleep(0.01)
    time.sleep(0.1)
    print("a step", flush=True)
    print("a bar", file=sys.stderr, flush=True)
    Path("saved").touch()
"""


def test_a_run_whose_terminal_goes_saves(tmp_path: Path) -> None:
    ours, its = pty.openpty()
    run = subprocess.Popen(
        [sys.executable, "-c", AT_A_TERMINAL],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=its,
        stdout=its,
        stderr=its,
        start_new_session=True,
    )
    os.close(its)
    while not (tmp_path / "begun").exists():
        assert run.poll() is None
        time.sleep(0.01)
    os.close(ours)
    run.send_signal(signal.SIGHUP)  # as the shell tells it once more
    assert run.wait(60) == 0
    assert (tmp_path / "saved").exists()


def test_what_nohup_has_ignored_asks_nobody() -> None:
    assert signal.SIGHUP in ending_signals()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert ending_signals() == [signal.SIGTERM, signal.SIGINT]
    finally:
        signal.signal(signal.SIGHUP, before)


def test_ctrl_c_ends_what_was_started_with_it_ignored() -> None:
    """As a shell does for commands in the background of a script."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupt(lambda _: None, "saving") as interrupt:
            signal.raise_signal(signal.SIGINT)
            assert interrupt.asked == signal.SIGINT
            with pytest.raises(KeyboardInterrupt):
                interrupt.act()
    finally:
        signal.signal(signal.SIGINT, before)

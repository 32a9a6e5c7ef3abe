"""Signals that end a run, and a terminal that closes while the run works."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.helpers import ROOT

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


def test_a_run_saves_when_its_terminal_closes(tmp_path: Path) -> None:
    parent_end, child_end = pty.openpty()
    run = subprocess.Popen(
        [sys.executable, "-c", AT_A_TERMINAL],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=child_end,
        stdout=child_end,
        stderr=child_end,
        start_new_session=True,
    )
    os.close(child_end)
    while not (tmp_path / "begun").exists():
        assert run.poll() is None
        time.sleep(0.01)
    os.close(parent_end)
    run.send_signal(signal.SIGHUP)  # the shell sends it too
    assert run.wait(60) == 0
    assert (tmp_path / "saved").exists()


def test_a_hangup_that_nohup_ignores_does_not_end_a_run() -> None:
    assert signal.SIGHUP in ending_signals()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert ending_signals() == [signal.SIGTERM, signal.SIGINT]
    finally:
        signal.signal(signal.SIGHUP, before)


def test_ctrl_c_ends_a_run_started_with_it_ignored() -> None:
    """Shells start the background commands of a script with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupt(lambda _: None, "saving") as interrupt:
            signal.raise_signal(signal.SIGINT)
            assert interrupt.asked == signal.SIGINT
            with pytest.raises(KeyboardInterrupt):
                interrupt.act()
    finally:
        signal.signal(signal.SIGINT, before)

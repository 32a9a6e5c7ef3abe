"""Only one run at a time works in a folder."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ernie.errors import Remark, UserError
from ernie.train.run_folder import run_lock

HOLD = """
import sys, time
from pathlib import Path
from ernie.train.run_folder import run_lock
with run_lock(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_process_is_locked_out_until_the_first_ends_even_if_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == "held\n"
            with (
                pytest.raises(UserError, match="another process is at work on the run in this folder"),
                run_lock(tmp_path),
            ):
                pass
        finally:
            other.send_signal(signal.SIGKILL)
    with run_lock(tmp_path):
        pass


def test_locks_of_different_folders_are_independent_and_reusable(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    for _ in range(2):
        with run_lock(tmp_path / "one"), run_lock(tmp_path / "two"):
            pass


def test_an_error_inside_the_lock_propagates_unchanged(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match="mine"), run_lock(tmp_path):
        raise NotImplementedError("mine")
    with run_lock(tmp_path):
        pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP], ids=["NFS without a lock daemon", "no locks"])
def test_on_a_file_system_without_locks_a_run_goes_on_with_a_note(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    entered = []
    with pytest.warns(Remark, match="its file system has no locks"), run_lock(tmp_path):
        entered.append(True)
    assert entered


def test_another_error_of_a_lock_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match="Stale file handle"), run_lock(tmp_path):
        pass

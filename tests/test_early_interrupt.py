"""Ctrl-C while the command line is being imported or while the interpreter ends: no traceback, status 130."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.helpers import ROOT

# Imported by Python at its start: sends a real signal when a module of a given name is first asked for, or at exit.
AT_START = """
import atexit, os, signal, sys

class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == os.environ["INTERRUPT_AT"]:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
if os.environ["INTERRUPT_AT"] == "exit":
    atexit.register(os.kill, os.getpid(), signal.SIGINT)
"""
SCRIPT = (sys.executable, "-c", "import sys; from ernie_command import main; sys.exit(main())")
MODULE = (sys.executable, "-m", "ernie.cli")
MOMENTS = ("ernie.runtime", "importlib.metadata", "ernie.train.origin", "pretrain.commands.tasks", "exit")


def interrupted(command: tuple[str, ...], moment: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "sitecustomize.py").write_text(AT_START)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), "INTERRUPT_AT": moment}
    return subprocess.run([*command, "tasks"], cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("command", [SCRIPT, MODULE], ids=["script", "module"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_during_imports_and_at_exit_ends_with_130_and_a_line(
    command: tuple[str, ...], moment: str, tmp_path: Path
) -> None:
    done = interrupted(command, moment, tmp_path)
    assert done.returncode == 130
    assert done.stderr.endswith("ernie: interrupted\n") and "Traceback" not in done.stderr


def test_a_program_that_imports_the_library_keeps_its_own_ctrl_c() -> None:
    code = "import signal, ernie, ernie.cli; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_ctrl_c_stays_ignored_where_a_shell_ignores_it() -> None:
    code = "import ernie_command, signal; ernie_command.expect_interrupts(); print(signal.getsignal(signal.SIGINT))"
    shell = f"trap '' INT; exec {sys.executable} -c '{code}'"
    done = subprocess.run(["sh", "-c", shell], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stdout.strip() in ("1", "Handlers.SIG_IGN")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("ernie") is None, reason="needs the console script")
@pytest.mark.parametrize("words", ["--help", "tasks", "nonsense"])
def test_ctrl_c_at_any_moment_shows_no_line_of_the_library(words: str) -> None:
    rng = random.Random(words)
    for _ in range(60):
        process = subprocess.Popen(["ernie", words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        time.sleep(rng.uniform(0, 1.5))
        process.send_signal(signal.SIGINT)
        printed = process.communicate(timeout=60)[1]
        # Before the first line of ours, the interpreter's own start may be interrupted.
        assert str(ROOT / "ernie") not in printed, printed
        assert "Traceback" in printed or process.returncode in (130, -signal.SIGINT, 0, 2), printed

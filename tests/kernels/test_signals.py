"""A signal may arrive at any moment: no handler runs where it would overwrite the memory of a product."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.helpers import PYTHON_PATH, ROOT
from support.kernels.interrupted import MANY
from support.kernels.judging import needs_kernels

from ernie.kernels.build import compiler, processor_flags, runnable

pytestmark = [needs_kernels, pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")]
HERE = Path(__file__).parent


@pytest.mark.parametrize("variant", runnable(processor_flags()))
def test_handlers_of_signals_run_on_the_stack_only_and_change_no_result(variant: str, tmp_path: Path) -> None:
    handler = tmp_path / "handler.so"
    command = compiler()
    assert command is not None
    subprocess.run([*command, "-x", "c", "-shared", "-fPIC", str(HERE / "handler.c"), "-o", str(handler)], check=True)
    done = subprocess.run(
        [sys.executable, "interrupted.py", str(handler)],
        cwd=ROOT / "tests" / "support" / "kernels",
        env={**os.environ, "ERNIE_KERNELS": variant, "PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    same, handled, off_stack = json.loads(done.stdout)
    assert (same, off_stack) == (True, 0)
    assert handled >= MANY

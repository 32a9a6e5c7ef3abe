"""Every variant of the kernels that this processor can run passes the same tests as the default one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.helpers import PYTHON_PATH
from support.kernels.judging import needs_kernels

from ernie.kernels.build import processor_flags, runnable
from ernie.kernels.cpu.library import library

HERE = Path(__file__).parent
TESTS = ("adamw", "attention", "attention_dropout", "determinism", "dropout")
KERNEL_TESTS = ("embedding", "layer", "linear", "norm", "vocabulary")
FILES = [*(f"test_{name}.py" for name in TESTS), *(f"test_{name}_kernel.py" for name in KERNEL_TESTS)]


@needs_kernels
@pytest.mark.parametrize("variant", runnable(processor_flags())[1:])
def test_a_variant_passes_the_same_tests(variant: str) -> None:
    chosen = library()
    if chosen is not None and chosen.variant != runnable(processor_flags())[0]:
        pytest.skip(f"this run is of {chosen.variant} alone")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *FILES],
        cwd=HERE,
        env={**os.environ, "ERNIE_KERNELS": variant, "PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]

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
    passes(FILES, ERNIE_KERNELS=variant)


@pytest.mark.skipif("amx_bf16" not in processor_flags(), reason="this processor has no tile unit")
def test_without_the_tile_unit_inference_passes_the_same_tests() -> None:
    passes(["test_stack.py"], ONEDNN_MAX_CPU_ISA="AVX512_CORE_BF16")


def passes(files: list[str], **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *files],
        cwd=HERE,
        env={**os.environ, **environment, "PYTHONPATH": PYTHON_PATH},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]

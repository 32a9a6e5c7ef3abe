"""The kernels are right with any team that OpenMP grants them: fewer threads than asked for, one, or none further."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from support.helpers import PYTHON_PATH, ROOT
from support.kernels.families import digests, digests_in_a_thread
from support.kernels.judging import needs_kernels

from ernie.kernels.build import processor_flags, runnable
from ernie.kernels.cpu.library import library

pytestmark = needs_kernels
VARIANTS = runnable(processor_flags())
LIMITS = {
    "a thread limit of one": {"OMP_THREAD_LIMIT": "1", "MKL_NUM_THREADS": "4"},
    "dynamic teams": {"OMP_NUM_THREADS": "4", "OMP_DYNAMIC": "true"},
    "a limit for the device": {"KMP_DEVICE_THREAD_LIMIT": "2", "MKL_NUM_THREADS": "4"},
    "a parallel region": {"MKL_NUM_THREADS": "3"},
}


def digests_in_a_process(variant: str, place: str = "plain", **environment: str) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "families.py", place],
        cwd=ROOT / "tests" / "support" / "kernels",
        env={**os.environ, "ERNIE_KERNELS": variant, "PYTHONPATH": PYTHON_PATH, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("limit", LIMITS)
def test_every_kernel_gives_the_same_bits_under(limit: str) -> None:
    variant = library().variant  # type: ignore[union-attr]
    place = "region" if limit == "a parallel region" else "plain"
    assert digests_in_a_process(variant, place, **LIMITS[limit]) == digests()


@pytest.mark.parametrize("variant", VARIANTS[1:])
def test_every_other_variant_gives_the_same_bits_under_a_thread_limit(variant: str) -> None:
    limited = digests_in_a_process(variant, OMP_THREAD_LIMIT="1", MKL_NUM_THREADS="4")
    assert limited == digests_in_a_process(variant)


def test_every_kernel_gives_the_same_bits_in_a_thread_of_a_pool() -> None:
    assert digests_in_a_thread() == digests()

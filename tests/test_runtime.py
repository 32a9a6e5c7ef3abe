"""The set-up of threads, whoever imports Paddle first."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ernie import runtime

ASKED = """
from ernie.kernels.cpu.library import library
found = library()
print(ernie.runtime.threads(), found and found.handle.ernie_kernels_max_threads())
"""


def threads(imports: str, **environment: str) -> tuple[str, str]:
    """What a fresh process says: the threads that were chosen, and those of the kernels (None without kernels)."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith("NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"{imports}\n{ASKED}"],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    chosen, used = done.stdout.split()[-2:]
    return chosen, used


@pytest.mark.parametrize("imports", ["import ernie", "import paddle, ernie"])
@pytest.mark.parametrize(
    ("environment", "wanted"),
    [({}, None), ({"OMP_NUM_THREADS": "1"}, "1"), ({"OMP_NUM_THREADS": "3"}, "3"), ({"MKL_NUM_THREADS": "1"}, "1")],
)
def test_as_many_threads_as_the_user_says_or_else_as_there_are_cores(
    imports: str, environment: dict[str, str], wanted: str | None
) -> None:
    chosen, used = threads(imports, **environment)
    assert chosen == (wanted or str(runtime.cores()))
    assert used in (chosen, "None")


@pytest.mark.parametrize(("given", "used"), [("3,2", "3"), ("", None), ("many", None), ("0", None)])
def test_a_list_of_threads_counts_by_its_first_and_nonsense_not_at_all(given: str, used: str | None) -> None:
    assert threads("import ernie", OMP_NUM_THREADS=given)[0] == (used or str(runtime.cores()))


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, math.inf),
        ({"cpu/cpu.cfs_quota_us": "400000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 4),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, math.inf),
        ({"cpu.max": "what?\n"}, math.inf),
        ({}, math.inf),
    ],
)
def test_the_limit_of_a_container_is_read_in_both_versions_of_control_groups(
    files: dict[str, str], cores: float, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert runtime.quota(tmp_path) == cores

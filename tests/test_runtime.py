"""The set-up of threads, whoever imports Paddle first."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

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
    from ernie.runtime import cores

    chosen, used = threads(imports, **environment)
    assert chosen == (wanted or str(cores()))
    assert used in (chosen, "None")

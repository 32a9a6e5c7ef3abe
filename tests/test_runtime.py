"""The number of threads, whether Paddle or the library is imported first."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ernie import runtime

PRINT_THREADS = """
from ernie.kernels.cpu.library import library
found = library()
print(ernie.runtime.threads(), found and found.handle.ernie_kernels_max_threads())
"""


def threads(imports: str, **environment: str) -> tuple[str, str]:
    """The chosen number of threads in a fresh process, and that of the kernels (None without kernels)."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith("NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", f"{imports}\n{PRINT_THREADS}"],
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
def test_the_number_of_threads_is_the_users_or_the_number_of_cores(
    imports: str, environment: dict[str, str], wanted: str | None
) -> None:
    chosen, used = threads(imports, **environment)
    assert chosen == (wanted or str(runtime.cores()))
    assert used in (chosen, "None")


@pytest.mark.parametrize(("given", "used"), [("3,2", "3"), ("", None), ("many", None), ("0", None)])
def test_the_first_of_a_list_of_threads_counts_and_invalid_values_are_ignored(given: str, used: str | None) -> None:
    assert threads("import ernie", OMP_NUM_THREADS=given)[0] == (used or str(runtime.cores()))


@pytest.mark.parametrize("variable", ["MKL_NUM_THREADS", "OMP_NUM_THREADS"])
@pytest.mark.parametrize("imports", ["import ernie", "import paddle, ernie"])
def test_more_threads_than_a_system_has_are_one_for_each_core(variable: str, imports: str) -> None:
    cores = str(runtime.cores())
    assert threads(imports, **{variable: "99999999999"}) in ((cores, cores), (cores, "None"))


@pytest.mark.parametrize("imports", ["import ernie", "import paddle, ernie"])
def test_a_thread_limit_bounds_the_number_of_threads(imports: str) -> None:
    chosen, used = threads(imports, MKL_NUM_THREADS="4", OMP_THREAD_LIMIT="1")
    assert chosen == "1" and used in ("1", "None")


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
def test_the_cpu_limit_is_read_from_both_versions_of_control_groups(
    files: dict[str, str], cores: float, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert runtime.quota(tmp_path) == cores


def test_only_paddles_warning_of_a_missing_compiler_cache_is_silenced_whatever_the_filters() -> None:
    code = (
        "import warnings, ernie\nwarnings.simplefilter('error')\nimport paddle.utils.cpp_extension\n"
        "warnings.simplefilter('always')\nwarnings.warn('No ccache found, says another')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PATH": ""})
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Warning") == 1 and "says another" in done.stderr


def test_a_configuration_can_be_made_without_importing_paddle() -> None:
    code = "import sys\nfrom ernie import EncoderConfig\nprint(EncoderConfig(layers=2).layers, 'paddle' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2 False\n"

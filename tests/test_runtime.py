"""The number of threads, whether Paddle or the library is imported first."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import paddle
import pytest

from ernie import runtime

OF_KERNELS = """
from ernie.kernels.cpu.library import library
found = library()
print(found and found.handle.ernie_kernels_max_threads())
"""
FIRST = pytest.mark.parametrize("imports", ["import ernie", "import paddle, ernie"])


def printed(code: str, **environment: str) -> list[str]:
    """What a fresh process prints; its number of threads is up to `environment`."""
    kept = {name: value for name, value in os.environ.items() if not name.endswith("NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def chosen(**environment: str) -> str:
    """The number of threads that the library chooses, without Paddle."""
    return printed("import ernie\nprint(ernie.runtime.threads())", **environment)[-1]


def used(imports: str, **environment: str) -> tuple[str, str]:
    """The chosen number of threads, and that of the kernels (None without kernels)."""
    first, second = printed(f"{imports}\nprint(ernie.runtime.threads())\n{OF_KERNELS}", **environment)[-2:]
    return first, second


@FIRST
@pytest.mark.parametrize(("environment", "wanted"), [({}, None), ({"OMP_NUM_THREADS": "3"}, "3")])
def test_the_kernels_use_the_number_of_threads_of_the_user_or_of_cores(
    imports: str, environment: dict[str, str], wanted: str | None
) -> None:
    wanted = wanted or str(runtime.cores())
    assert used(imports, **environment) in ((wanted, wanted), (wanted, "None"))


@pytest.mark.parametrize("variable", ["MKL_NUM_THREADS", "OMP_NUM_THREADS"])
def test_the_number_of_threads_is_the_users(variable: str) -> None:
    assert chosen(**{variable: "1"}) == "1"


@pytest.mark.parametrize(("given", "used"), [("3,2", "3"), ("", None), ("many", None), ("0", None)])
def test_the_first_of_a_list_of_threads_counts_and_invalid_values_are_ignored(given: str, used: str | None) -> None:
    assert chosen(OMP_NUM_THREADS=given) == (used or str(runtime.cores()))


@pytest.mark.parametrize("variable", ["MKL_NUM_THREADS", "OMP_NUM_THREADS"])
def test_more_threads_than_a_system_has_are_one_for_each_core(variable: str) -> None:
    assert chosen(**{variable: "99999999999"}) == str(runtime.cores())


def test_of_too_many_threads_the_kernels_start_one_for_each_core_even_if_paddle_was_imported_first() -> None:
    cores = str(runtime.cores())
    assert used("import paddle, ernie", OMP_NUM_THREADS="99999999999") in ((cores, cores), (cores, "None"))


@FIRST
def test_a_thread_limit_bounds_the_number_of_threads(imports: str) -> None:
    found = used(imports, MKL_NUM_THREADS="4", OMP_THREAD_LIMIT="1")
    assert found in (("1", "1"), ("1", "None"))


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


def test_a_gpu_computes_the_same_bits_again_unless_the_user_prefers_speed() -> None:
    flags = ("FLAGS_cudnn_deterministic", "FLAGS_embedding_deterministic")
    code = f"import os, ernie\nprint(*(os.environ[name] for name in {flags}))"
    assert printed(code, **{flags[1]: "0"})[-2:] == ["1", "0"]


def test_a_paddle_that_was_imported_first_gets_the_flags_of_its_device(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, object]] = []
    monkeypatch.setattr(paddle, "set_flags", given.append)
    for has_gpu in (False, True):
        monkeypatch.setattr(paddle, "is_compiled_with_cuda", lambda has_gpu=has_gpu: has_gpu)
        runtime._configure_paddle(["FLAGS_cudnn_deterministic"])
    assert given == [{"FLAGS_use_stride_kernel": False}] * 2 + [{"FLAGS_cudnn_deterministic": 1}]

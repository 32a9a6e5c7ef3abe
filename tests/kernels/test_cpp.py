"""The C++ kernels without Python: `cpp/*.cpp` compares them with plain loops in double precision, on odd sizes, in
arrays that detect out-of-bounds accesses."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from ernie.kernels.build import SOURCES, build, cached, compiler, processor_flags, runnable

HERE = Path(__file__).parent / "cpp"
VARIANTS = runnable(processor_flags())
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")

pytestmark = pytest.mark.skipif(compiler() is None or not VARIANTS, reason="needs a C++ compiler and AVX2")


def compiled(target: Path, *flags: str) -> Path:
    """Compile the test program."""
    command = compiler()
    assert command is not None
    sources = sorted(map(str, HERE.glob("*.cpp")))
    # The library loaded by the program needs the OpenMP runtime, which the linker would drop from the program.
    always = ("-std=c++17", "-O1", "-mavx2", "-mfma", "-fopenmp", "-Wl,--no-as-needed", f"-I{SOURCES}")
    subprocess.run([*command, *always, *flags, *sources, "-ldl", "-o", str(target)], check=True)
    return target


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("cpp") / "kernels_test")


def output(*command: str | Path, threads: int) -> str:
    """The output of the program, which has to succeed."""
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    done = subprocess.run([*command, str(threads)], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-5000:]}"
    return done.stdout


@pytest.mark.parametrize("variant", VARIANTS)
def test_kernels_equal_plain_loops_and_stay_in_bounds_with_any_number_of_threads(variant: str, program: Path) -> None:
    library = cached(variant) if cached(variant).is_file() else build(variant, cached(variant))
    outputs = [output(program, library, threads=threads) for threads in (1, 2, 5)]
    assert " 0 failures" in outputs[0]
    assert outputs[0] == outputs[1] == outputs[2]  # the same bits


@pytest.mark.slow  # compiles for a minute each
@pytest.mark.parametrize("variant", VARIANTS)
def test_address_and_undefined_behavior_sanitizers_find_nothing(variant: str, tmp_path: Path) -> None:
    library = build(variant, tmp_path / f"{variant}.so", (*SANITIZERS, "-O1"))
    output(compiled(tmp_path / "kernels_test", "-DHEAP", *SANITIZERS), library, threads=2)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="needs valgrind")
def test_valgrind_finds_no_invalid_access_or_uninitialized_value(tmp_path: Path) -> None:
    library = build("avx2", tmp_path / "avx2.so", ("-g",))  # valgrind does not support AVX-512
    program = compiled(tmp_path / "kernels_test", "-DHEAP", "-g")
    output("valgrind", "--quiet", "--error-exitcode=9", program, library, threads=2)

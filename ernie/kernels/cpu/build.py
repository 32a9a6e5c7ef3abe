"""Compiles the C++ kernels for an instruction set: into the wheel as it is built, or at first use."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SOURCES = Path(__file__).parent / "src"
SHIPPED = Path(__file__).parent / "lib"  # filled as a wheel is built

_AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma")
# What the compiler may use, and what a processor must say it has (the names of Linux), best first.
VARIANTS: dict[str, tuple[str, ...]] = {
    "avx512_bf16": (*_AVX512, "-mavx512bf16"),
    "avx512": _AVX512,
    "avx2": ("-mavx2", "-mfma"),
}
_NEEDS = {
    "avx512_bf16": {"avx512f", "avx512bw", "avx512vl", "avx512dq", "fma", "avx512_bf16"},
    "avx512": {"avx512f", "avx512bw", "avx512vl", "avx512dq", "fma"},
    "avx2": {"avx2", "fma"},
}
# -w: GCC warns about its own intrinsics' headers.  -fopenmp is for compiling only: the library is loaded where an
# OpenMP runtime is, Paddle's, and a second one would fight with it over the cores.
_FLAGS = ("-std=c++17", "-O3", "-fopenmp", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-w")


class CannotBuild(Exception):
    """Why the kernels could not be compiled."""


def processor_flags() -> set[str]:
    """What this processor says it has; empty where that cannot be read."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return set()
    return set(next((line.split(":", 1)[1] for line in text.splitlines() if line.startswith("flags")), "").split())


def best_variant(flags: set[str]) -> str | None:
    """The variant for a processor with these flags, None when there is none."""
    return next((name for name, needs in _NEEDS.items() if needs <= flags), None)


def find(variant: str) -> Path | None:
    """The library of a variant that was shipped or built before."""
    return next((path for path in (SHIPPED / f"{variant}.so", cached(variant)) if path.is_file()), None)


def cached(variant: str) -> Path:
    """Where a library built at first use lies: a name for these very sources and flags."""
    digest = hashlib.sha256(repr((_FLAGS, VARIANTS[variant])).encode())
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return home / "ernie-continual" / "kernels" / digest.hexdigest()[:16] / f"{variant}.so"


def build(variant: str, path: Path, extra: Sequence[str] = ()) -> Path:
    """Compile the library of a variant to `path`.  Raises CannotBuild without a compiler or when it fails."""
    compiler = os.environ.get("CXX") or shutil.which("g++") or shutil.which("c++") or shutil.which("clang++")
    if not compiler:
        raise CannotBuild("there is no C++ compiler (g++ or clang++)")
    with tempfile.TemporaryDirectory() as folder:

        def compiled(source: Path) -> str:
            target = f"{folder}/{source.stem}.o"
            _run([compiler, *_FLAGS, *VARIANTS[variant], *extra, "-c", str(source), "-o", target])
            return target

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compiled, sorted(SOURCES.glob("*.cpp"))))
        _run([compiler, "-shared", *extra, "-o", f"{folder}/out.so", *objects])
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Written beside and renamed: another process may be looking for it.
            beside = path.with_suffix(f".{os.getpid()}")
            shutil.copy(f"{folder}/out.so", beside)
            beside.replace(path)
        except OSError as error:
            raise CannotBuild(f"{path} could not be written ({error})") from None
    return path


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise CannotBuild(f"{command[0]} could not be started ({error})") from None
    if done.returncode:
        raise CannotBuild(f"{' '.join(command)} failed:\n{done.stderr.strip()}")

"""Compiles the C++ kernels for an instruction set: into the wheel as it is built, or at first use.

Imports nothing else of the library: setup.py runs this file where neither it nor Paddle is installed yet.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

SOURCES = Path(__file__).parent / "cpu" / "src"
SHIPPED = Path(__file__).parent / "cpu" / "lib"  # filled in a wheel, never in the source tree

_AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma")
# What the compiler may use, and what a processor must say it has (the names of Linux), best first.
VARIANTS: dict[str, tuple[str, ...]] = {
    "avx512_bf16": (*_AVX512, "-mavx512bf16", "-mavx512vnni"),
    "avx512": _AVX512,
    "avx2": ("-mavx2", "-mfma"),
}
_NEEDS = {
    "avx512_bf16": {"avx512f", "avx512bw", "avx512vl", "avx512dq", "fma", "avx512_bf16", "avx512_vnni"},
    "avx512": {"avx512f", "avx512bw", "avx512vl", "avx512dq", "fma"},
    "avx2": {"avx2", "fma"},
}
# -w: GCC warns about its own intrinsics' headers.  -fopenmp is for compiling only: the library is loaded where an
# OpenMP runtime is, Paddle's, and a second one would fight with it over the cores.
_FLAGS = ("-std=c++17", "-O3", "-fopenmp", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-w")


class CannotBuild(Exception):
    """Why there are no kernels, in one sentence without its full stop; `details` is all that the compiler said."""

    def __init__(self, reason: str, details: str = "") -> None:
        super().__init__(reason)
        self.details = details


def processor_flags() -> set[str]:
    """What this processor says it has; empty where that cannot be read."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return set()
    return set(next((line.split(":", 1)[1] for line in text.splitlines() if line.startswith("flags")), "").split())


def runnable(flags: set[str]) -> list[str]:
    """The variants that a processor with these flags can run, best first."""
    return [name for name, needs in _NEEDS.items() if needs <= flags]


def cache() -> Path:
    """The folder of the libraries built at first use."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111 (never raises)
    return Path(home) / "ernie-continual" / "kernels"


def cached(variant: str) -> Path:
    """Where a library built at first use lies: a name for these very sources and flags."""
    digest = hashlib.sha256(repr((_FLAGS, VARIANTS[variant])).encode())
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    return cache() / digest.hexdigest()[:16] / f"{variant}.so"


def compiler() -> list[str] | None:
    """The command of the C++ compiler: what CXX says, or the first of the usual names that there is."""
    try:
        named = shlex.split(os.environ.get("CXX", ""))
    except ValueError as error:
        raise CannotBuild(f"CXX: {error}") from None
    return named or next(([path] for name in ("g++", "c++", "clang++") if (path := shutil.which(name))), None)


def build(variant: str, path: Path, extra: Sequence[str] = ()) -> Path:
    """Compile the library of a variant to `path`.  Raises CannotBuild without a compiler or when it fails."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        raise CannotBuild("they are for Linux on x86-64 processors")
    command = compiler()
    if command is None:
        raise CannotBuild("there is no C++ compiler (g++ or clang++)")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Built beside and renamed: another process may be looking for it, or building it too.
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{variant}-") as folder:
            library = _compile(command, variant, extra, Path(folder))
            _seal(library)
            library.replace(path)
    except OSError as error:
        raise CannotBuild(
            f"{path.parent} cannot be written ({error.strerror}); set XDG_CACHE_HOME to a folder that can"
        ) from None
    return path


def _seal(library: Path) -> None:
    """Put a digest behind what is in the file, where nothing that loads it looks, and all of it on the disk."""
    with library.open("r+b") as file:
        file.write(hashlib.sha256(file.read()).digest())
        file.flush()
        os.fsync(file.fileno())


def is_whole(library: Path) -> bool:
    """Whether there is this library as it was built: to load one that was cut off would end the process."""
    try:
        content = library.read_bytes()
    except OSError:
        return False
    size = hashlib.sha256().digest_size
    return hashlib.sha256(content[:-size]).digest() == content[-size:]


def remember_failure(variant: str) -> None:
    """Remember that this compiler cannot compile a variant, where there is room to."""
    with suppress(OSError):
        _failure(variant).parent.mkdir(parents=True, exist_ok=True)
        _failure(variant).write_text(_compiler_and_version(), encoding="utf-8")


def has_failed(variant: str) -> bool:
    """Whether this very compiler could not compile these very sources for a variant."""
    try:
        return _failure(variant).read_text(encoding="utf-8") == _compiler_and_version()
    except (OSError, ValueError):
        return False


def _failure(variant: str) -> Path:
    return cached(variant).with_suffix(".failed")


def _compiler_and_version() -> str:
    command = compiler() or ["none"]
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True)
    except OSError:
        return shlex.join(command)
    return f"{shlex.join(command)}\n{done.stdout}"


def _compile(command: list[str], variant: str, extra: Sequence[str], folder: Path) -> Path:
    def compiled(source: Path) -> str:
        target = str(folder / f"{source.stem}.o")
        flags = (*_FLAGS, *VARIANTS[variant], *extra)
        _run([*command, *flags, "-c", str(source), "-o", target], f"{source.name} for {variant}")
        return target

    library = folder / "out.so"
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, sorted(SOURCES.glob("*.cpp"))))
    _run([*command, "-shared", *extra, "-o", str(library), *objects], f"the library for {variant}")
    return library


def _run(command: list[str], what: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise CannotBuild(f"the C++ compiler {command[0]} cannot be started ({error.strerror})") from None
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        first = next((line for line in lines if "error" in line), f"exit status {done.returncode}")
        raise CannotBuild(f"{command[0]} could not compile {what}: {first}", f"{shlex.join(command)}\n{done.stderr}")

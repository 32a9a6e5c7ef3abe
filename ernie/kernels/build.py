"""Compile the C++ kernels for an instruction set, either into a wheel or at first use.

Imports nothing else from this library: setup.py runs this file before the library and Paddle are installed.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

SOURCES = Path(__file__).parent / "cpu" / "src"
SHIPPED = Path(__file__).parent / "cpu" / "lib"  # populated in wheels only, never in the source tree

_AVX512 = ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma")
# The compiler flags of each variant, and the CPU flags (as Linux names them) that it requires; best variant first.
VARIANTS: dict[str, tuple[str, ...]] = {
    "avx512_bf16": (*_AVX512, "-mavx512bf16", "-mavx512vnni"),
    "avx512": _AVX512,
    "avx2": ("-mavx2", "-mfma"),
}
_CPU_FLAGS = {
    "avx512_bf16": {"avx512f", "avx512bw", "avx512vl", "avx512dq", "fma", "avx512_bf16", "avx512_vnni"},
    "avx512": {"avx512f", "avx512bw", "avx512vl", "avx512dq", "fma"},
    "avx2": {"avx2", "fma"},
}
# -w: GCC warns about its own intrinsics headers.  -fopenmp is passed to the compiler but not to the linker: the process
# already has an OpenMP runtime, Paddle's, and a second one would compete with it for the cores.
_FLAGS = ("-std=c++17", "-O3", "-fopenmp", "-fPIC", "-fvisibility=hidden", "-fno-math-errno", "-w")


class CannotBuild(Exception):
    """Why there are no kernels, as a sentence without its full stop; `details` is the full output of the compiler."""

    def __init__(self, reason: str, details: str = "") -> None:
        super().__init__(reason)
        self.details = details


def processor_flags() -> set[str]:
    """Return the flags of this processor; empty if they cannot be read."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return set()
    return set(next((line.split(":", 1)[1] for line in text.splitlines() if line.startswith("flags")), "").split())


def runnable(flags: set[str]) -> list[str]:
    """Return the variants that a processor with these flags can run, best first."""
    return [name for name, required in _CPU_FLAGS.items() if required <= flags]


def cache() -> Path:
    """Return the folder of the libraries built at first use.

    It is relative, and so never used (see `is_private`), if there is no home folder.  A relative XDG_CACHE_HOME is
    ignored, as its specification asks: it would be another folder, perhaps a stranger's, in each working directory.
    """
    home = os.environ.get("XDG_CACHE_HOME", "")
    if not home.startswith("/"):
        home = os.path.expanduser("~/.cache")  # noqa: PTH111 (never raises)
    return Path(home) / "ernie-continual" / "kernels"


def is_private(path: Path) -> bool:
    """Whether nobody else but root can have written this file or folder, or what will be written there.

    A library that is loaded runs with the rights of this user.  So the folder and those above it must be ours or
    root's.  Others must not be able to write to them, except where they cannot replace our files, as in /tmp.
    """
    if not path.is_absolute():
        return False
    try:
        real = Path(os.path.realpath(path))
        return all(_is_safe(place) for start in (path, real) for place in (start, *start.parents))
    except (OSError, ValueError):
        return False


def _is_safe(place: Path) -> bool:
    try:
        found = place.lstat()
    except (FileNotFoundError, NotADirectoryError):  # to be made by us, in a folder that is checked as well
        return True
    if found.st_uid not in (0, os.geteuid()):
        return False
    if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):  # links are followed elsewhere
        return True
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:
        return True
    by_group = found.st_mode & stat.S_IWGRP and found.st_gid not in (0, os.getgid())
    return not (by_group or found.st_mode & stat.S_IWOTH)


def cached(variant: str) -> Path:
    """Return the path of a library built at first use, which depends on a hash of the sources and compiler flags."""
    digest = hashlib.sha256(repr((_FLAGS, VARIANTS[variant])).encode())
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    return cache() / digest.hexdigest()[:16] / f"{variant}.so"


def compiler() -> list[str] | None:
    """Return the C++ compiler command: $CXX if set, else the first of the usual names on the PATH, else None.

    Raises CannotBuild if $CXX cannot be parsed.
    """
    try:
        given = shlex.split(os.environ.get("CXX", ""))
    except ValueError as error:
        raise CannotBuild(f"CXX: {error}") from None
    return given or next(([path] for name in ("g++", "c++", "clang++") if (path := shutil.which(name))), None)


def build(variant: str, path: Path, extra: Sequence[str] = ()) -> Path:
    """Compile the library of a variant to `path`.  Raises CannotBuild if there is no compiler or it fails.

    Of processes that do so at the same time one compiles, and the others wait for it.
    """
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "AMD64"):
        raise CannotBuild("they are for Linux on x86-64 processors")
    command = compiler()
    if command is None:
        raise CannotBuild("there is no C++ compiler (g++ or clang++)")
    try:
        if not is_private(path.parent):
            raise CannotBuild(
                f"others can write to {path.parent} or a folder above it; set XDG_CACHE_HOME to a folder of your own"
            )
        _make_private(path.parent)
        before = _identity(path)
        with _locked(path.parent):
            if _identity(path) != before:  # another process has built it in the meantime
                return path
            # Built in a temporary folder and renamed: another process may be loading it at the same time.
            with tempfile.TemporaryDirectory(dir=path.parent, prefix=f".{variant}-") as folder:
                library = _compile(command, variant, extra, Path(folder))
                _seal(library)
                library.replace(path)
    except OSError as error:
        raise CannotBuild(
            f"{path.parent} cannot be written ({error.strerror}); set XDG_CACHE_HOME to a folder that can"
        ) from None
    return path


def _make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, in which only this user can write."""
    for place in (*reversed(folder.parents), folder):
        with suppress(FileExistsError):
            place.mkdir(mode=0o700)


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what differs between a file and one that takes its place; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock on a folder.  The system releases it when the process ends; some file systems have none."""
    import fcntl  # not on Windows, where setup.py runs this file, too

    place = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(place, fcntl.LOCK_EX)
        yield
    finally:
        os.close(place)


def _seal(library: Path) -> None:
    """Append a digest to the library, where the loader ignores it, and flush the file to disk."""
    with library.open("r+b") as file:
        file.write(hashlib.sha256(file.read()).digest())
        file.flush()
        os.fsync(file.fileno())


def is_whole(library: Path) -> bool:
    """Whether the library exists and matches its digest: loading a truncated one would crash the process."""
    try:
        content = library.read_bytes()
    except OSError:
        return False
    size = hashlib.sha256().digest_size
    return hashlib.sha256(content[:-size]).digest() == content[-size:]


def remember_failure(variant: str) -> None:
    """Record that this compiler cannot compile a variant, if the cache is writable."""
    with suppress(OSError):
        _make_private(_failure(variant).parent)
        _failure(variant).write_text(_compiler_and_version(), encoding="utf-8")


def has_failed(variant: str) -> bool:
    """Whether this compiler has already failed to compile these sources for a variant."""
    try:
        return _failure(variant).read_text(encoding="utf-8") == _compiler_and_version()
    except (OSError, ValueError):
        return False


def _failure(variant: str) -> Path:
    return cached(variant).with_suffix(".failed")


def _compiler_and_version() -> str:
    command = compiler() or ["none"]
    try:
        result = subprocess.run([*command, "--version"], capture_output=True, text=True)
    except OSError:
        return shlex.join(command)
    return f"{shlex.join(command)}\n{result.stdout}"


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
        result = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise CannotBuild(f"the C++ compiler {command[0]} cannot be started ({error.strerror})") from None
    if result.returncode:
        lines = result.stderr.strip().splitlines()
        first = next((line for line in lines if "error" in line), f"exit status {result.returncode}")
        raise CannotBuild(f"{command[0]} could not compile {what}: {first}", f"{shlex.join(command)}\n{result.stderr}")

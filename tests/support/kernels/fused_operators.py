"""Paddle's own fused operators on a CPU, computed by the kernels of `fused_operators.cpp`."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import paddle

from ernie.kernels.build import compiler

_SOURCE = Path(__file__).with_suffix(".cpp")
_PADDLE = Path(paddle.__file__).parent


class FusedOperators:
    """What Paddle has asked of the kernels."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        library.wanted_of.restype = ctypes.c_char_p

    def calls(self, kernel: str) -> int:
        """How often the kernel was called."""
        return self._library.calls_of(kernel.encode())

    def wanted(self, kernel: str) -> str:
        """Of the results that the kernel could give, those that its last caller wanted: "101" for all but the second.

        Paddle gives a kernel no memory for the others.
        """
        return self._library.wanted_of(kernel.encode()).decode()


@contextmanager
def fused_operators(folder: Path) -> Iterator[FusedOperators]:
    """Inside, Paddle has the operators on a CPU.  Their library is built in a folder, which takes five seconds."""
    command, target = compiler(), folder / "fused_operators.so"
    assert command is not None
    include, libraries = _PADDLE / "include", _PADDLE / "libs"
    flags = ["-std=c++17", "-O0", "-w", "-fPIC", "-shared", f"-I{include}", f"-I{include / 'third_party'}"]
    linked = [f"-L{libraries}", "-l:libphi_core.so", "-l:libcommon.so"]
    subprocess.run([*command, *flags, str(_SOURCE), "-o", str(target), *linked], check=True)
    library = ctypes.CDLL(str(target))  # Paddle's libraries are those of this process
    library.register_kernels()
    try:
        yield FusedOperators(library)
    finally:
        library.remove_kernels()

"""What Paddle needs to be fast on a CPU, set as the library is imported; and the sentence for when it is not there."""

from __future__ import annotations

import ctypes
import importlib.util
import math
import multiprocessing
import multiprocessing.process
import os
import signal
import stat
import sys
import threading
import warnings
from contextlib import suppress
from pathlib import Path
from types import FrameType

from ernie.errors import UserError

_STRIDES = "FLAGS_use_stride_kernel"
_LATER = 10.0  # seconds: longer than most steps
HANG_UP = getattr(signal, "SIGHUP", None)  # the end of a terminal; Windows has no such signal


def prepare() -> None:
    """Set up threads, products and memory for this machine; what the user has set stays.

    Paddle's CPU wheel starts with one thread, and its bundled MKL takes a slow path on AMD processors.  The threads
    are MKL's own setting: OMP_NUM_THREADS would do the same, but makes Paddle print a warning at every start.
    """
    os.environ.setdefault("MKL_NUM_THREADS", _first_number(_omp_threads()) or str(cores()))
    os.environ.setdefault("FLAGS_paddle_num_threads", str(threads()))
    os.environ.setdefault("MKL_DEBUG_CPU_TYPE", "5")  # MKL reads it at its first product
    # Strided views save a copy on a GPU; on a CPU every product that follows a transpose pays for them, and a
    # training step takes half as long again.  Whatever the user has set: the kernels read rows one after the other.
    os.environ[_STRIDES] = "0"
    os.environ.setdefault("GLOG_minloglevel", "2")
    # Paddle looks for a compiler cache, which this library has no use for, and warns when there is none.
    warnings.filterwarnings("ignore", message="No ccache found", category=UserWarning)
    _keep_memory()
    if "paddle" in sys.modules:  # imported before, it has read the environment without all this
        _tell_paddle()


def cores() -> int:
    """The processor cores that this process may use: those it may run on, or a container's limit."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(found, quota(Path("/sys/fs/cgroup")))))


def quota(groups: Path) -> float:
    """The processor time that the control group at this path allows, in cores; infinite without a limit.

    One thread a core of the machine would stand still most of the time where `docker run --cpus` allows a few.
    """
    try:
        if (groups / "cpu.max").is_file():  # version 2
            allowed, period = (groups / "cpu.max").read_text().split()
        else:
            allowed, period = ((groups / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(allowed) / int(period) if allowed.strip() not in ("max", "-1") else math.inf
    except (OSError, ValueError):
        return math.inf


def memory(key: str = "VmRSS") -> int:
    """The bytes of memory that this process takes, or with VmHWM has taken at the most; 0 where Linux does not say."""
    return _bytes(Path("/proc/self/status"), key)


def total_memory(key: str = "MemTotal") -> int:
    """The bytes of memory that this machine has, or with MemAvailable has free; 0 where Linux does not say."""
    return _bytes(Path("/proc/meminfo"), key)


def _bytes(file: Path, key: str) -> int:
    try:
        lines = file.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{key}:")), 0)


def threads() -> int:
    """The threads that products and kernels run with."""
    return int(_first_number(os.environ.get("MKL_NUM_THREADS", "")) or cores())


def _omp_threads() -> str:
    """OMP_NUM_THREADS as the user has set it: Paddle, once imported, has set it to 1 where it was not there."""
    found = os.environ.get("OMP_NUM_THREADS", "")
    if found == "1" and "paddle" in sys.modules:
        try:
            at_start = Path("/proc/self/environ").read_bytes().split(b"\0")
        except OSError:
            return ""
        return found if b"OMP_NUM_THREADS=1" in at_start else ""
    return found


def _first_number(text: str) -> str:
    """OpenMP takes a list as well, "4,2", a number for each level of nesting."""
    first = text.split(",")[0].strip()
    return first if first.isdigit() and int(first) else ""


def _keep_memory() -> None:
    """Have glibc keep what is freed.

    Each step frees and allocates the same large pieces; given back to the kernel, every page of them would have to be
    cleared again, which takes a tenth of a step.  Those of the kernels are kept by ernie.kernels.cpu.room.
    """
    mmap_threshold, trim_threshold = -3, -1  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD, see mallopt(3)
    if sys.platform == "linux" and "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):
            libc.mallopt(mmap_threshold, 1 << 30)
            libc.mallopt(trim_threshold, (1 << 31) - 1)


def let_go() -> None:
    """Give memory that is free back to the kernel: after something that took much of it and is not done again."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "malloc_trim"):
            libc.malloc_trim(0)


def _tell_paddle() -> None:
    import paddle

    paddle.set_flags({_STRIDES: False})
    libraries = Path(paddle.__file__).parent / "libs"
    for name, function in (("libiomp5.so", "omp_set_num_threads"), ("libmklml_intel.so", "MKL_Set_Num_Threads")):
        if (libraries / name).is_file():
            getattr(ctypes.CDLL(str(libraries / name)), function)(threads())


def require_paddle() -> None:
    """Import Paddle for a command.  Raises UserError with the install commands when no wheel is installed.

    Paddle's own signal handlers, which print its C++ stack, are taken back: Python's are those that count.
    """
    if importlib.util.find_spec("paddle") is None:
        raise UserError(
            "PaddlePaddle is not installed. On a machine without a GPU: pip install 'ernie-continual[cpu]'. "
            "With an NVIDIA GPU, take the wheel for your CUDA version from Paddle's own index (README, Install)."
        )
    import paddle

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    paddle.disable_signal_handler()
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():
            signal.signal(number, handler)


def ending_signals() -> list[int]:
    """The signals that ask a command to end: SIGTERM, Ctrl-C, and the end of its terminal unless `nohup` is to help."""
    found: list[int] = [signal.SIGTERM, signal.SIGINT]
    if HANG_UP is not None and signal.getsignal(HANG_UP) != signal.SIG_IGN:
        found.append(HANG_UP)
    return found


def leave_terminal() -> None:
    """Where the terminal has gone, send what is still said to nowhere: writing there is an error."""
    for file in (1, 2):
        with suppress(OSError):  # of one that is closed
            if stat.S_ISCHR(os.fstat(file).st_mode) and not os.isatty(file):
                with Path(os.devnull).open("wb") as nothing:
                    os.dup2(nothing.fileno(), file)


def begin_worker() -> None:
    """What a worker process begins with: the process that it works for ends it.

    Ctrl-C, the end of a terminal and the SIGTERM of a scheduler reach the whole group of processes, and one that saves
    what it has still needs its workers: they end some seconds after a SIGTERM, by which a pool that is broken ends
    them, too.  Where the process that they work for was killed, they end at once.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if HANG_UP is not None:
        signal.signal(HANG_UP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end_later)
    if (parent := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_end_with, args=(parent,), daemon=True, name="parent").start()


def _end_later(number: int, frame: FrameType | None) -> None:
    timer = threading.Timer(_LATER, os._exit, (128 + number,))
    timer.daemon = True
    timer.start()


def _end_with(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)

"""Process-wide setup: Paddle's threads and memory on a CPU, its import, and the handling of signals."""

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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, PathFinder
from multiprocessing import resource_tracker
from pathlib import Path
from types import FrameType, ModuleType

from ernie.errors import UserError

_STRIDES = "FLAGS_use_stride_kernel"
# Of a GPU: without them sums of gradients are in any order, and a resumed run has other last bits than an unbroken one.
_REPEATABLE = ("FLAGS_cudnn_deterministic", "FLAGS_embedding_deterministic")
_MOST_THREADS = 256  # unless there are more cores: OpenMP ends the process when the system has no thread left
_GRACE = 10.0  # seconds until a worker ends after a SIGTERM: longer than most steps
replaced: list[str] = []  # the variables that asked for too many threads
SIGHUP = getattr(signal, "SIGHUP", None)  # sent when a terminal closes; None on Windows, which has no such signal


def prepare() -> None:
    """Configure threads, matrix products and memory for this machine, without overriding the user's settings.

    Paddle's CPU wheel starts with one thread, and its bundled MKL takes a slow path on AMD processors.  Threads are set
    through MKL's variable: OMP_NUM_THREADS would work too, but makes Paddle print a warning at every start.
    """
    for name in ("MKL_NUM_THREADS", "OMP_NUM_THREADS"):
        if excess_threads(os.environ.get(name, "")):
            os.environ[name] = str(cores())
            replaced.append(name)
    os.environ.setdefault("MKL_NUM_THREADS", _first_number(_omp_threads()) or str(cores()))
    os.environ.setdefault("FLAGS_paddle_num_threads", str(threads()))
    os.environ.setdefault("MKL_DEBUG_CPU_TYPE", "5")  # MKL reads it at its first matrix product
    # Strided views save a copy on a GPU, but slow down every matrix product after a transpose on a CPU: a training step
    # takes 1.5 times as long.  Overrides the user's setting, since the kernels require contiguous rows.
    os.environ[_STRIDES] = "0"
    os.environ.setdefault("GLOG_minloglevel", "2")
    unset = [name for name in _REPEATABLE if name not in os.environ]
    os.environ.update(dict.fromkeys(unset, "1"))
    sys.meta_path.insert(0, _WithoutCompilerCache())
    _keep_memory()
    if "paddle" in sys.modules:  # imported earlier, Paddle has read the environment without these settings
        _configure_paddle(unset)


class _WithoutCompilerCache:
    """Imports the one module of Paddle that warns if there is no compiler cache, which this library does not use.

    It has no base class, since importing `importlib.abc` takes a fifth of the time that importing this library takes.
    A warning filter would not do: whoever resets the filters, as pytest does, would see the warning.
    """

    _MODULE = "paddle.utils.cpp_extension.cpp_extension"

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path) if name == self._MODULE else None
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_quietly(module: ModuleType) -> None:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="No ccache found", category=UserWarning)
                execute(module)

        setattr(spec.loader, "exec_module", execute_quietly)  # noqa: B010 - a method, which mypy lets nobody assign
        return spec


def cores() -> int:
    """Return the number of CPU cores that this process may use, by its affinity and a container's limit."""
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(available, quota(Path("/sys/fs/cgroup")))))


def busy_cores() -> float:
    """Return how many cores were busy in the last minute, by the load average; 0 where there is none."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def note_on_others(busy: float, available: int) -> str:
    """Return a note if other programs keep more than half of the cores busy, else ""."""
    return f"other programs keep {busy:.1f} of {available} cores busy" if busy > available / 2 else ""


def quota(groups: Path) -> float:
    """Return the CPU time that the control group at this path allows, in cores; infinite without a limit.

    With one thread per core of the machine, threads would be throttled most of the time under `docker run --cpus`.
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
    """Return the memory of this process in bytes, with VmHWM its peak; 0 if it is unknown (not on Linux)."""
    return _bytes(Path("/proc/self/status"), key)


def total_memory(key: str = "MemTotal") -> int:
    """Return the memory of this machine in bytes, with MemAvailable what is free; 0 if unknown (not on Linux)."""
    return _bytes(Path("/proc/meminfo"), key)


def _bytes(file: Path, key: str) -> int:
    try:
        lines = file.read_text(encoding="ascii").splitlines()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith(f"{key}:")), 0)


def threads() -> int:
    """Return the number of threads of matrix products and kernels, at most what OMP_THREAD_LIMIT allows."""
    wanted = int(_first_number(os.environ.get("MKL_NUM_THREADS", "")) or cores())
    return min(wanted, int(_first_number(os.environ.get("OMP_THREAD_LIMIT", "")) or wanted))


def excess_threads(given: str) -> bool:
    """Whether a variable asks for more threads than a process can be expected to start."""
    return int(_first_number(given)[:20] or 0) > max(_MOST_THREADS, os.cpu_count() or 1)


def note_on_threads() -> str:
    """Return a note on the variables whose number of threads was replaced, or "" if none was."""
    if not replaced:
        return ""
    return f"{' and '.join(replaced)}: more than {_MOST_THREADS} threads; using one for each core, {cores()}"


def _omp_threads() -> str:
    """Return OMP_NUM_THREADS as the user has set it: importing Paddle sets it to 1 if it was unset."""
    value = os.environ.get("OMP_NUM_THREADS", "")
    if value == "1" and "paddle" in sys.modules:
        try:
            at_start = Path("/proc/self/environ").read_bytes().split(b"\0")
        except OSError:
            return ""
        return value if b"OMP_NUM_THREADS=1" in at_start else ""
    return value


def _first_number(text: str) -> str:
    """Return the first number of an OpenMP list such as "4,2", which has one for each nesting level; "" if invalid."""
    first = text.split(",")[0].strip()
    return first.lstrip("0") if first.isascii() and first.isdigit() else ""


def _keep_memory() -> None:
    """Make glibc keep freed memory instead of returning it to the kernel.

    Each step frees and allocates the same large blocks.  If they were returned, the kernel would have to zero all their
    pages again, which takes a tenth of a step.  Those of our kernels are kept by ernie.kernels.cpu.pool.
    """
    mmap_threshold, trim_threshold = -3, -1  # M_MMAP_THRESHOLD and M_TRIM_THRESHOLD, see mallopt(3)
    if sys.platform == "linux" and "MALLOC_MMAP_THRESHOLD_" not in os.environ:
        libc = ctypes.CDLL(None)
        if hasattr(libc, "mallopt"):
            libc.mallopt(mmap_threshold, 1 << 30)
            libc.mallopt(trim_threshold, (1 << 31) - 1)


def release_free_memory() -> None:
    """Return free memory to the kernel, after a memory-intensive operation that is not repeated."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        if hasattr(libc, "malloc_trim"):
            libc.malloc_trim(0)


def _configure_paddle(repeatable: Sequence[str]) -> None:
    """Configure a Paddle that is imported already; `repeatable` are the flags of a GPU that the user has not set."""
    import paddle

    paddle.set_flags({_STRIDES: False})
    if paddle.is_compiled_with_cuda():  # the CPU wheel does not know them
        paddle.set_flags(dict.fromkeys(repeatable, 1))
    libraries = Path(paddle.__file__).parent / "libs"
    for name, function in (("libiomp5.so", "omp_set_num_threads"), ("libmklml_intel.so", "MKL_Set_Num_Threads")):
        if (libraries / name).is_file():
            getattr(ctypes.CDLL(str(libraries / name)), function)(threads())


def check_paddle() -> None:
    """Raise UserError with the install commands if no wheel of Paddle is installed."""
    if importlib.util.find_spec("paddle") is None:
        raise UserError(
            "PaddlePaddle is not installed. On a machine without a GPU: pip install 'ernie-continual[cpu]'. "
            "With an NVIDIA GPU, take the wheel for your CUDA version from Paddle's own index (docs/howto/install.md)."
        )


def require_paddle() -> None:
    """Import Paddle for a command.  Raises UserError if it is not installed.

    Paddle's signal handlers, which print its C++ stack, are removed in favor of Python's.
    """
    check_paddle()
    import paddle

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    paddle.disable_signal_handler()
    if threading.current_thread() is threading.main_thread():
        for number, handler in handlers.items():
            signal.signal(number, handler)


def ending_signals() -> list[int]:
    """Return the signals that ask a command to end: SIGTERM, SIGINT, and SIGHUP unless ignored, as under `nohup`."""
    signals: list[int] = [signal.SIGTERM, signal.SIGINT]
    if SIGHUP is not None and signal.getsignal(SIGHUP) != signal.SIG_IGN:
        signals.append(SIGHUP)
    return signals


def leave_terminal() -> None:
    """If the terminal is gone, redirect output to the null device: writing to it would raise an error."""
    for file in (1, 2):
        with suppress(OSError):  # the file may be closed
            if stat.S_ISCHR(os.fstat(file).st_mode) and not os.isatty(file):
                with Path(os.devnull).open("wb") as nothing:
                    os.dup2(nothing.fileno(), file)


@contextmanager
def signals_held() -> Iterator[None]:
    """Hold the signals that end a command meanwhile; a process that starts holds them until `initialize_worker`."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # multiprocessing would start it with the first worker, and let the signals in
    held = signal.pthread_sigmask(signal.SIG_BLOCK, ending_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def initialize_worker() -> None:
    """Initialize a worker process so that its parent process decides when it ends.

    Ctrl-C, SIGHUP and a scheduler's SIGTERM reach the whole process group, but a parent that is saving still needs its
    workers.  So they ignore the first two and end some seconds after a SIGTERM, which a broken pool also sends to end
    them.  If the parent was killed, they end at once.
    """
    held = ending_signals()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if SIGHUP is not None:
        signal.signal(SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _exit_later)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, held)
    if (parent := multiprocessing.parent_process()) is not None:
        threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True, name="parent").start()


def _exit_later(number: int, frame: FrameType | None) -> None:
    timer = threading.Timer(_GRACE, os._exit, (128 + number,))
    timer.daemon = True
    timer.start()


def _exit_with_parent(parent: multiprocessing.process.BaseProcess) -> None:
    parent.join()
    os._exit(1)

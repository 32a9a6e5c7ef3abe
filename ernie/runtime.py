"""What must be set before Paddle is imported, and the sentence for when Paddle is not there."""

from __future__ import annotations

import importlib.util
import os
import signal
import threading
import warnings

from ernie.errors import UserError


def prepare() -> None:
    """Set the environment that Paddle reads as it is imported; what the user has set stays.

    Paddle's CPU wheel starts with one thread, and its bundled MKL takes a slow path on AMD processors.  The threads
    are MKL's own setting: OMP_NUM_THREADS would do the same, but makes Paddle print a warning at every start.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = os.environ.get("OMP_NUM_THREADS", str(cores))
    os.environ.setdefault("MKL_NUM_THREADS", threads)
    os.environ.setdefault("FLAGS_paddle_num_threads", threads)
    os.environ.setdefault("MKL_DEBUG_CPU_TYPE", "5")
    # Strided views save a copy on a GPU; on a CPU every product that follows a transpose pays for them, and a
    # training step takes half as long again.
    os.environ.setdefault("FLAGS_use_stride_kernel", "0")
    os.environ.setdefault("GLOG_minloglevel", "2")
    # Paddle looks for a compiler cache, which this library has no use for, and warns when there is none.
    warnings.filterwarnings("ignore", message="No ccache found", category=UserWarning)


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

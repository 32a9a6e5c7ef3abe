"""What must be set before Paddle is imported, and the sentence for when Paddle is not there."""

from __future__ import annotations

import importlib.util
import os

from ernie.errors import UserError


def prepare() -> None:
    """Set the environment that Paddle reads as it is imported; what the user has set stays.

    Paddle's CPU wheel starts with one thread, and its bundled MKL takes a slow path on AMD processors
    (docs/performance.md has the figures).
    """
    threads = str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    os.environ.setdefault("OMP_NUM_THREADS", threads)
    os.environ.setdefault("FLAGS_paddle_num_threads", os.environ["OMP_NUM_THREADS"])
    os.environ.setdefault("MKL_DEBUG_CPU_TYPE", "5")
    os.environ.setdefault("GLOG_minloglevel", "2")


def require_paddle() -> None:
    """Raise UserError with the install commands when no Paddle wheel is installed."""
    if importlib.util.find_spec("paddle") is None:
        raise UserError(
            "PaddlePaddle is not installed. On a machine without a GPU: pip install 'ernie-continual[cpu]'. "
            "With an NVIDIA GPU, take the wheel for your CUDA version from Paddle's own index (README, Install)."
        )

"""Problems of an installation and how to fix them, one sentence each."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ernie import runtime
from ernie.doctor.machine import Machine, version
from ernie.doctor.stack import Kernels, Paddle, Stack

_GPU_WHEEL = (
    "pip uninstall paddlepaddle, then the GPU wheel for your CUDA version from Paddle's own index "
    "(docs/howto/install.md)"
)
_AMPERE = 8.0  # its compute capability
_OLDEST = (3, 3, 1)  # as in setup.cfg


def advice(machine: Machine, stack: Stack) -> list[str]:
    """Return all problems that can be fixed, the most serious first."""
    return [
        *_packages(machine),
        *_paddle(machine, stack.paddle),
        *(_kernels(machine, stack.kernels) if stack.paddle.device == "cpu" else ()),
        *_threads(machine),
    ]


def _packages(machine: Machine) -> Iterator[str]:
    missing = [name for name, found in machine.versions.items() if found is None]
    if missing:
        yield f"not installed, though the library requires it: pip install {' '.join(missing)}"
    if version("paddlepaddle") and version("paddlepaddle-gpu"):
        yield (
            "paddlepaddle and paddlepaddle-gpu are both installed and overwrite each other: "
            "pip uninstall both, then install one of them"
        )


def _paddle(machine: Machine, paddle: Paddle) -> Iterator[str]:
    if machine.gpus and paddle.cuda is None:
        yield f"this machine has a GPU ({machine.gpus[0].name}), but Paddle is the CPU wheel: {_GPU_WHEEL}"
    if paddle.cuda is not None and paddle.device == "cpu":
        yield (
            f"Paddle is the wheel for CUDA {paddle.cuda}, but finds no GPU: see whether nvidia-smi lists one and "
            "whether CUDA_VISIBLE_DEVICES hides it"
        )
    old = [gpu.name for gpu in machine.gpus if gpu.capability and float(gpu.capability) < _AMPERE]
    if old and paddle.device != "cpu":
        yield (
            f"{old[0]} is older than Ampere and has neither bf16 nor FlashAttention: set precision to fp16, and expect "
            "attention to take time and memory with the square of the length"
        )
    numbers = tuple(int(part) for part in paddle.version.split(".")[:3] if part.isdigit())
    if len(numbers) == 3 and any(numbers) and not _OLDEST <= numbers < (3, 4):
        yield f"Paddle is {paddle.version}, but the library is made for 3.3 from 3.3.1 on: install one of these"


def _kernels(machine: Machine, kernels: Kernels) -> Iterator[str]:
    chosen = os.environ.get("ERNIE_KERNELS")
    if chosen and kernels.best and chosen != kernels.best:
        yield f"ERNIE_KERNELS={chosen} is slower than {kernels.best}, which this processor can run: unset it"
    elif kernels.best and kernels.variant is None and machine.compiler is None:
        yield "there is no C++ compiler for the kernels: apt install g++ (or dnf install gcc-c++), then start again"
    elif kernels.best and kernels.variant is None:
        yield f"the kernels could not be built: {kernels.reason}"
    elif kernels.variant != kernels.best:
        yield f"the compiler is too old for the {kernels.best} kernels: install g++ 10 or later and name it in CXX"
    if "AMD" in machine.vendor and os.environ.get("MKL_DEBUG_CPU_TYPE") != "5":
        yield (
            "MKL_DEBUG_CPU_TYPE is set, and Paddle's own products take MKL's slow path on this AMD processor: unset it"
        )


def _threads(machine: Machine) -> Iterator[str]:
    if machine.threads_from:
        yield (
            f"{machine.threads_from} makes it {machine.threads} thread{'s' * (machine.threads != 1)} on "
            f"{machine.cores} core{'s' * (machine.cores != 1)}: unset it, or set it to {machine.cores}"
        )
    if note := runtime.note_on_others(machine.busy_cores, machine.cores):
        yield f"{note}: the speeds above are lower than the machine's"

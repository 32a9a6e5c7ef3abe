"""The software stack in use: Paddle, its device, the kernels and the precision."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal

from ernie.errors import Remark
from ernie.kernels.build import SHIPPED, CannotBuild, processor_flags, runnable
from ernie.kernels.precision import resolve


@dataclass(frozen=True)
class Paddle:
    """The installed Paddle, and the versions of CUDA, cuDNN and NCCL it was built for, None for the CPU wheel."""

    version: str
    cuda: str | None
    device: str
    cudnn: str | None = None
    nccl: str | None = None


@dataclass(frozen=True)
class Kernels:
    """The C++ kernels.  Without a `variant`, `reason` says why there are none and `details` is the compiler's output.

    `best` is the best variant that this processor supports.
    """

    best: str | None
    variant: str | None = None
    path: str | None = None
    origin: Literal["shipped", "built"] | None = None
    reason: str | None = None
    details: str = ""


@dataclass(frozen=True)
class Stack:
    """Paddle, the kernels, and the precision that `auto` resolves to."""

    paddle: Paddle
    kernels: Kernels
    precision: str


def find() -> Stack:
    """Determine the stack.  Compiles the kernels if necessary."""
    paddle = _paddle()
    kernels = _kernels(paddle)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "running without", Remark)  # this warning refers to `ernie doctor`
        return Stack(paddle, kernels, resolve("auto"))


def _paddle() -> Paddle:
    import paddle

    built_for = paddle.version
    if not paddle.is_compiled_with_cuda():
        return Paddle(paddle.__version__, None, paddle.get_device())
    cuda, cudnn, nccl = (str(version()) for version in (built_for.cuda, built_for.cudnn, built_for.nccl))
    return Paddle(paddle.__version__, cuda, paddle.get_device(), cudnn, nccl)


def _kernels(paddle: Paddle) -> Kernels:
    best = next(iter(runnable(processor_flags())), None)
    if paddle.device != "cpu":
        return Kernels(best, reason="they are for CPUs, and Paddle computes on a GPU")
    from ernie.kernels.cpu.library import search

    found = search()
    if isinstance(found, CannotBuild):
        return Kernels(best, reason=str(found), details=found.details)
    origin: Literal["shipped", "built"] = "shipped" if found.path.parent == SHIPPED else "built"
    return Kernels(best, found.variant, str(found.path), origin)

"""In which type products are computed: float32, or a type of half its size with sums and weights kept in float32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Literal

from ernie.errors import UserError

Precision = Literal["fp32", "bf16", "fp16"]
Wanted = Literal["auto", "fp32", "bf16", "fp16"]

_current: ContextVar[Precision] = ContextVar("precision", default="fp32")


def resolve(wanted: Wanted) -> Precision:
    """The precision for this machine: with `auto`, bf16 where it has instructions for it, else fp32.

    Raises UserError when the machine cannot compute in the one that is wanted.
    """
    possible = _possible()
    if wanted == "auto":
        return "bf16" if "bf16" in possible else "fp32"
    if wanted not in possible:
        raise UserError(
            f"precision {wanted}: this machine computes in {' and '.join(possible)} only; precision: auto takes the "
            "fastest of them"
        )
    return wanted


@contextmanager
def precision(name: Precision) -> Iterator[None]:
    """Kernels called inside compute in this precision.  Weights, gradients and what a layer returns stay float32."""
    import paddle

    before = _current.set(name)
    try:
        if name != "fp32" and paddle.get_device() != "cpu":
            with paddle.amp.auto_cast(dtype="bfloat16" if name == "bf16" else "float16", level="O1"):
                yield
        else:
            yield
    finally:
        _current.reset(before)


def computing(wanted: Wanted) -> AbstractContextManager[None]:
    """`precision` of what `resolve` makes of `wanted`."""
    return precision(resolve(wanted))


def is_low() -> bool:
    """Whether the precision in force is below float32."""
    return _current.get() != "fp32"


def _possible() -> list[Precision]:
    import paddle

    if paddle.get_device() != "cpu":
        return ["fp32", "bf16", "fp16"] if paddle.amp.is_bfloat16_supported() else ["fp32", "fp16"]
    from ernie.kernels.cpu.library import library

    found = library()
    return ["fp32", "bf16"] if found is not None and found.has_bf16 else ["fp32"]

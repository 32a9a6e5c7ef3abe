"""In which type products are computed: float32, or a type of half its size with sums and weights kept in float32."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Literal

from ernie.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from paddle import Tensor

Precision = Literal["fp32", "bf16", "fp16"]
Wanted = Literal["auto", "fp32", "bf16", "fp16"]
WantedForInference = Literal["auto", "fp32", "bf16", "fp16", "int8"]
# How much a GPU computes in a precision below fp32: products and attention, or all but losses, softmax and norms.
Level = Literal["O1", "O2"]

_TYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "int8": "float32"}
_current: ContextVar[str] = ContextVar("precision", default="fp32")
_level: ContextVar[Level] = ContextVar("level", default="O1")


def resolve(wanted: Wanted) -> Precision:
    """The precision for this machine: with `auto`, bf16 where it has instructions for it, else fp32.

    Raises UserError when the machine cannot compute in the one that is wanted.
    """
    if wanted == "auto":
        return "bf16" if "bf16" in _possible() else "fp32"
    _check(wanted)
    return wanted


@contextmanager
def precision(name: Precision | Literal["int8"], level: Level = "O1") -> Iterator[None]:
    """Kernels called inside compute in this precision; what Paddle computes itself does on a GPU.

    Weights and their gradients stay float32, and are cast as they are used: the model's own are the master weights.
    What a layer returns is float32 too, except on a GPU at level O2, where all tensors between operators are of the
    lower precision.  On a CPU there is one level, O1.
    """
    import paddle

    if name != "fp32":
        _check(name)
    on_gpu = paddle.get_device() != "cpu"
    before = _current.set(name), _level.set(level if on_gpu else "O1")
    try:
        if name != "fp32" and on_gpu:
            with paddle.amp.auto_cast(dtype=_TYPES[name], level=level):
                yield
        else:
            yield
    finally:
        _current.reset(before[0])
        _level.reset(before[1])


def computing(wanted: WantedForInference, level: Level = "O1") -> AbstractContextManager[None]:
    """`precision` of what `resolve` makes of `wanted`."""
    if wanted == "int8":
        _check(wanted)
        return precision(wanted, level)
    return precision(resolve(wanted), level)


def current() -> str:
    """The precision in force."""
    return _current.get()


def is_low() -> bool:
    """Whether the precision in force is below float32.

    With int8 only stacks of layers compute in bytes; what is around them is in bfloat16 where the machine has it.
    """
    name = _current.get()
    return name in ("bf16", "fp16") or (name == "int8" and "bf16" in _possible())


def is_all_low() -> bool:
    """Whether what layers return is below float32 as well."""
    return is_low() and _level.get() == "O2"


def cast(x: Tensor) -> Tensor:
    """A tensor in the type of the precision in force, as the fused operators of a GPU take it."""
    return x.astype(_TYPES[_current.get()])


def to_numpy(x: Tensor) -> np.ndarray:
    """What a tensor holds, in float32 whichever precision it was computed in: NumPy has no bfloat16, and takes its
    bits for whole numbers."""
    return x.astype("float32").numpy()


def _check(wanted: str) -> None:
    possible = _possible()
    if wanted not in possible:
        raise UserError(
            f"precision {wanted}: this machine computes in {', '.join(possible)} only; precision: auto takes the "
            "one that suits it best"
        )


def _possible() -> list[str]:
    import paddle

    if paddle.get_device() != "cpu":
        return ["fp32", "bf16", "fp16"] if paddle.amp.is_bfloat16_supported() else ["fp32", "fp16"]
    from ernie.kernels.cpu.library import library

    found = library()
    if found is None:
        return ["fp32"]
    return ["fp32", "bf16", "int8"] if found.has_bf16 else ["fp32", "int8"]

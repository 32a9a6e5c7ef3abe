"""The data type of matrix products: float32, or a type of half its size with sums and weights kept in float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import TYPE_CHECKING, Literal, ParamSpec, TypeVar

from ernie.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    from paddle import Tensor

Precision = Literal["fp32", "bf16", "fp16"]
PrecisionChoice = Literal["auto", "fp32", "bf16", "fp16"]
InferencePrecisionChoice = Literal["auto", "fp32", "bf16", "fp16", "int8"]
# What a GPU computes below fp32: products and attention (O1), or everything but losses, softmax and norms (O2).
Level = Literal["O1", "O2"]

Name = TypeVar("Name", bound=str)
P = ParamSpec("P")
T = TypeVar("T")
_TYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "int8": "float32"}
_current: ContextVar[str] = ContextVar("precision", default="fp32")
_level: ContextVar[Level] = ContextVar("level", default="O1")
_mixes: ContextVar[bool] = ContextVar("mixes", default=False)  # whether Paddle casts the inputs of its own operators
_batch_invariant: ContextVar[bool] = ContextVar("batch_invariant", default=False)


def resolve(choice: PrecisionChoice) -> Precision:
    """Return the precision to use on this machine: for `auto`, bf16 if it has instructions for it, else fp32.

    Raises UserError if the machine does not support the chosen precision.
    """
    if choice == "auto":
        return "bf16" if "bf16" in _supported() else "fp32"
    return _checked(choice)


@contextmanager
def precision(choice: InferencePrecisionChoice, level: Level = "O1") -> Iterator[None]:
    """Run the kernels called inside in this precision; on a GPU, Paddle's own operators as well.

    `auto` is bf16 if the machine has instructions for it, else fp32.  Weights and their gradients stay float32 and are
    cast when used: the model's own weights are the master weights.  Layers return float32 too, except on a GPU at level
    O2, where all tensors between operators have the lower precision.  A CPU always uses O1.  Raises UserError if the
    machine does not support the chosen precision.
    """
    import paddle

    name = _checked(choice) if choice == "int8" else resolve(choice)
    on_gpu = paddle.get_device() != "cpu"
    mixes = on_gpu and name != "fp32"
    before = _current.set(name), _level.set(level if on_gpu else "O1"), _mixes.set(mixes)
    try:
        if mixes:
            with paddle.amp.auto_cast(dtype=_TYPES[name], level=level):
                yield
        else:
            yield
    finally:
        _current.reset(before[0])
        _level.reset(before[1])
        _mixes.reset(before[2])


@contextmanager
def as_given() -> Iterator[None]:
    """Inside, Paddle computes its own operators in the types that they are given, whatever the active precision.

    It would otherwise cast float32 factors of a product down.  Any other operator's inputs it would cast up to float32
    if one of them has it.  It would do so in updates and sums that belong to no layer, too.
    """
    if not _mixes.get():
        yield
        return
    import paddle

    with paddle.amp.auto_cast(enable=False):
        yield


@contextmanager
def as_chosen() -> Iterator[None]:
    """Inside, which is within `as_given`, Paddle computes its own operators in the active precision again."""
    if not _mixes.get():
        yield
        return
    import paddle

    with paddle.amp.auto_cast(dtype=_TYPES[_current.get()], level=_level.get()):
        yield


@contextmanager
def batch_invariant() -> Iterator[None]:
    """Compute each row of a linear layer in the same way, whatever rows are computed with it.

    Libraries choose how to sum by the number of rows, so that the last bits of a row depend on the batch.  In bfloat16
    such a difference becomes another token now and then.  On a CPU products are therefore computed row by row, or in
    blocks of a fixed number of rows.  Inference needs that where it promises the same output for a stream alone and
    among others.
    """
    before = _batch_invariant.set(True)
    try:
        yield
    finally:
        _batch_invariant.reset(before)


def is_batch_invariant() -> bool:
    """Whether rows are computed as `batch_invariant` says."""
    return _batch_invariant.get()


def is_chosen() -> bool:
    """Whether the code runs inside of `precision`; a new thread does not."""
    return _current.get(None) is not None


def current() -> str:
    """Return the active precision."""
    return _current.get()


def is_low() -> bool:
    """Whether the active precision is below float32.

    With int8 only layer stacks compute in int8; everything around them uses bfloat16 where the machine supports it.
    """
    name = _current.get()
    return name in ("bf16", "fp16") or (name == "int8" and "bf16" in _supported())


def is_all_low() -> bool:
    """Whether layers return less than float32 as well (level O2)."""
    return is_low() and _level.get() == "O2"


def cast(x: Tensor) -> Tensor:
    """Cast a tensor to the active precision, as the fused operators of a GPU require."""
    return x.astype(_TYPES[_current.get()])


def in_float32(function: Callable[P, T]) -> Callable[P, T]:
    """Wrap a function of tensors, given by position, so that it computes in float32 in every precision.

    On a GPU linear layers give the active precision.  At level O2 Paddle would compute softmax, norms and losses of
    their outputs in it, too.
    """

    @wraps(function)
    def computed(*args: P.args, **kwargs: P.kwargs) -> T:
        if not _mixes.get():
            return function(*args, **kwargs)
        import paddle

        def wide(value: object) -> object:
            casts = isinstance(value, paddle.Tensor) and value.is_floating_point() and value.dtype != paddle.float32
            return value.astype("float32") if casts else value  # type: ignore[attr-defined]

        with paddle.amp.auto_cast(enable=False):
            return function(*map(wide, args), **kwargs)  # type: ignore[arg-type]

    return computed


def to_numpy(x: Tensor) -> np.ndarray:
    """Convert a tensor of any precision to a float32 array: NumPy has no bfloat16 and reads its bits as integers."""
    return x.astype("float32").numpy()


def _checked(choice: Name) -> Name:
    supported = _supported()
    if choice not in supported:
        raise UserError(
            f"precision {choice}: this machine computes in {', '.join(supported)} only; precision: auto "
            "chooses the best one"
        )
    return choice


def _supported() -> list[str]:
    import paddle

    if paddle.get_device() != "cpu":
        return ["fp32", "bf16", "fp16"] if paddle.amp.is_bfloat16_supported() else ["fp32", "fp16"]
    from ernie.kernels.cpu.library import library

    found = library()
    if found is None:
        return ["fp32"]
    return ["fp32", "bf16", "int8"] if found.has_bf16 else ["fp32", "int8"]

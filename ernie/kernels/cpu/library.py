"""The C++ kernels as Python sees them: found or built, loaded, called.

`ERNIE_KERNELS` names the variant to use (`avx512_bf16`, `avx512`, `avx2`), or `reference` for none.
"""

from __future__ import annotations

import ctypes
import os
import warnings
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int, c_long, c_uint64, c_void_p
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import paddle

from ernie.errors import Remark, UserError
from ernie.kernels.build import (
    SHIPPED,
    VARIANTS,
    CannotBuild,
    build,
    cached,
    has_failed,
    is_whole,
    processor_flags,
    remember_failure,
    runnable,
)
from ernie.runtime import threads

_AT = c_void_p  # an address in memory


class AttentionShape(Structure):
    """As in src/attention.h."""

    _fields_ = (
        [(name, c_long) for name in ("sequences", "heads", "size")]
        + [(name, _AT) for name in ("query_offsets", "key_offsets", "first", "last")]
        + [("scale", c_float)]
    )


class LayerShape(Structure):
    """As in src/layer.h."""

    _fields_ = [
        *((name, c_long) for name in ("tokens", "outputs", "width", "inner")),
        ("rows", _AT),
        ("activation", c_int),
        *((name, c_float) for name in ("epsilon", "dropout", "attention_dropout")),
        ("seed", c_uint64),
        ("attention", AttentionShape),
    ]


_MATRICES = ("q", "k", "v", "out", "inner", "outer")
PARAMETERS = (*_MATRICES, *(f"{name}_bias" for name in _MATRICES), "gain1", "offset1", "gain2", "offset2")


class LayerParameters(Structure):
    """The weights of a layer, or their gradients, as in src/layer.h."""

    _fields_ = [(name, _AT) for name in PARAMETERS]


class AdamW(Structure):
    """As in src/adamw.h."""

    _fields_ = [
        (name, c_float)
        for name in ("rate", "beta1", "beta2", "epsilon", "decay", "correction1", "correction2", "gradient_scale")
    ]


class Recurrence(Structure):
    """As in src/recurrent.h."""

    _fields_ = [
        *((name, c_long) for name in ("sequences", "units")),
        *((name, _AT) for name in ("offsets", "order")),
        ("backward", c_int),
        ("begin", _AT),
    ]


class SampleNetwork(Structure):
    """A Network, as in src/sampling.h."""

    _fields_ = [
        *((name, c_long) for name in ("layers", "channels", "taps")),
        ("loudness", c_float),
        *((name, _AT) for name in ("dilations", "first", "mix", "leads", "on_bias")),
        *((name, _AT) for name in ("inner", "inner_bias", "out", "out_bias")),
    ]


_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "product": (c_int, *(c_long,) * 3, _AT, c_long, c_int, _AT, c_long, c_int, _AT, _AT, c_int, c_long, c_int),
    "attention_forward": (c_int, POINTER(AttentionShape), c_float, c_uint64, *(_AT,) * 5),
    "attention_backward": (c_int, POINTER(AttentionShape), c_float, c_uint64, *(_AT,) * 9),
    "layer_bytes": (c_int, POINTER(LayerShape), POINTER(c_long)),
    "layer_forward": (c_int, POINTER(LayerShape), POINTER(LayerParameters), _AT, _AT, _AT),
    "layer_backward": (
        c_int,
        POINTER(LayerShape),
        POINTER(LayerParameters),
        _AT,
        _AT,
        POINTER(LayerParameters),
        _AT,
    ),
    "add_norm": (*(_AT,) * 4, c_float, c_float, c_uint64, c_long, c_long, *(_AT,) * 3),
    "add_norm_backward": (*(_AT,) * 4, c_float, c_uint64, c_long, c_long, *(_AT,) * 4),
    "activate": (c_int, _AT, _AT, c_long),
    "activate_backward": (c_int, _AT, _AT, c_long, c_long, _AT),
    "gate": (_AT, c_long, c_long, _AT),
    "gate_backward": (_AT, _AT, c_long, c_long, _AT),
    "gru_forward": (POINTER(Recurrence), *(_AT,) * 5),
    "gru_backward": (POINTER(Recurrence), *(_AT,) * 7),
    "draw": (POINTER(SampleNetwork), c_long, c_float, *(_AT,) * 4),
    "column_sum": (c_int, _AT, c_long, c_long, _AT),
    "drop": (_AT, c_float, c_uint64, c_long, c_long, _AT),
    "gather_sum": (c_int, _AT, _AT, c_long, c_long, _AT),
    "scatter_add": (c_int, _AT, _AT, c_long, c_long, _AT),
    "cross_entropy": (c_int, _AT, _AT, c_long, c_long, _AT, _AT),
    "scale": (c_int, _AT, c_long, c_float),
    "convert": (_AT, _AT, c_long, c_long),
    "adamw": (POINTER(AdamW), *(_AT,) * 5, c_long),
    "squares": (_AT, c_long, POINTER(c_double)),
    "stack_new": (c_int, c_long, c_long, c_long, c_int, c_float, POINTER(LayerParameters), POINTER(_AT)),
    "stack_is_of": (_AT, POINTER(LayerParameters), POINTER(c_int)),
    "stack_run": (_AT, POINTER(LayerShape), POINTER(LayerShape), POINTER(LayerParameters), _AT, _AT),
    "stack_delete": (_AT,),
    "fingerprint": (_AT, c_long, c_long, POINTER(c_uint64)),
    "peak": (c_int, c_long, POINTER(c_double)),
}


@dataclass(frozen=True)
class Library:
    """The loaded kernels.  `call` runs one; `has_bf16` says whether they compute in bfloat16."""

    variant: str
    path: Path
    handle: ctypes.CDLL

    @property
    def has_bf16(self) -> bool:
        return self.variant == "avx512_bf16"

    def call(self, name: str, *arguments: Any) -> None:
        """Run a kernel.  Raises RuntimeError with what it says when it fails."""
        message = getattr(self.handle, f"ernie_{name}")(*arguments)
        if message is not None:
            raise RuntimeError(f"kernel {name}: {message.decode()}")


@cache
def library() -> Library | None:
    """The kernels of this machine, built if need be; None, with one note that says why, where there are none."""
    if _wanted() == "reference":
        return None
    found = search()
    if isinstance(found, Library):
        return found
    warnings.warn(
        f"running without the C++ kernels, several times slower and in fp32: {found}. `ernie doctor` says more.",
        Remark,
        stacklevel=2,
    )
    return None


@cache
def search() -> Library | CannotBuild:
    """The kernels of this machine, built if need be; or why there are none."""
    wanted, able = _wanted(), runnable(processor_flags())
    if wanted == "reference":
        return CannotBuild("ERNIE_KERNELS is set to 'reference'")
    if not able:
        return CannotBuild("they need Linux and a processor with AVX2")
    if wanted and wanted not in able:
        raise UserError(f"ERNIE_KERNELS: this processor cannot run {wanted}, only {', '.join(able)}")
    try:
        _load_what_they_call()
        return _best(able, wanted)
    except CannotBuild as reason:
        return reason


def _best(able: list[str], wanted: str) -> Library:
    reasons: dict[str, CannotBuild] = {}
    for variant in [wanted] if wanted else able:
        found = _there(variant)
        if found is None and not wanted and has_failed(variant):
            continue
        try:
            found = found or _built(variant)
        except CannotBuild as reason:
            reasons[variant] = reason
            continue
        _tell(variant, reasons)
        return found
    raise next(iter(reasons.values()))


def _tell(chosen: str, reasons: dict[str, CannotBuild]) -> None:
    """Say once why it is not a better variant: an old compiler does not know the newest instructions."""
    if not reasons:
        return
    better, reason = next(iter(reasons.items()))
    again = f"it is tried again with another compiler, or with ERNIE_KERNELS={better}"
    warnings.warn(f"using the {chosen} kernels, for {reason}; {again}", Remark, stacklevel=2)
    for variant, failure in reasons.items():
        if failure.details:  # the compiler's own words, and not that there is none
            remember_failure(variant)


def _wanted() -> str:
    wanted = os.environ.get("ERNIE_KERNELS", "")
    if wanted and wanted != "reference" and wanted not in VARIANTS:
        raise UserError(f"ERNIE_KERNELS: '{wanted}' is not one of reference, {', '.join(VARIANTS)}")
    return wanted


def _there(variant: str) -> Library | None:
    """What came with the wheel or was built before.

    One from another system, with a newer C library, does not load here: it is built anew, as is one that was cut off.
    """
    shipped, built = SHIPPED / f"{variant}.so", cached(variant)
    if os.path.isfile(shipped) and (found := _opened(variant, shipped)):  # noqa: PTH113 - never raises
        return found
    return _opened(variant, built) if is_whole(built) else None


def _built(variant: str) -> Library:
    warnings.warn("compiling the C++ kernels for this processor, once: about ten seconds", Remark, stacklevel=2)
    path = build(variant, cached(variant))
    if (found := _opened(variant, path)) is None:
        raise CannotBuild(f"{path} cannot be loaded; set XDG_CACHE_HOME to a folder from which programs may be run")
    return found


def _opened(variant: str, path: Path) -> Library | None:
    try:
        return _ready(variant, path, ctypes.CDLL(str(path)))
    except (OSError, AttributeError):  # it does not load, or is of other functions
        return None


def _load_what_they_call() -> None:
    """Have the functions of two of Paddle's libraries found: oneDNN's products, and the threads that they share."""
    for name in ("libiomp5.so", "libdnnl.so.3"):
        path = Path(paddle.__file__).parent / "libs" / name
        try:
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise CannotBuild(f"this Paddle has no library {name} that they could use ({error})") from None


def _ready(variant: str, path: Path, handle: ctypes.CDLL) -> Library:
    for name, types in _SIGNATURES.items():
        function = getattr(handle, f"ernie_{name}")
        function.argtypes, function.restype = types, c_char_p
    handle.ernie_kernels_threads(threads())
    return Library(variant, path, handle)

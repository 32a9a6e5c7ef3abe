"""The Python side of the C++ kernels: find or build the library, load it, call it.

`ERNIE_KERNELS` names the variant to use (`avx512_bf16`, `avx512`, `avx2`), or `reference` for none.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
import warnings
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_float, c_int, c_long, c_uint64, c_void_p
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
    compiler,
    has_failed,
    is_private,
    is_whole,
    processor_flags,
    remember_failure,
    runnable,
)
from ernie.kernels.cpu.leaving import enter
from ernie.runtime import note_on_threads, threads

_PTR = c_void_p


class AttentionShape(Structure):
    """AttentionShape in src/attention.h."""

    _fields_ = (
        [(name, c_long) for name in ("sequences", "heads", "size")]
        + [(name, _PTR) for name in ("query_offsets", "key_offsets", "first", "last")]
        + [("scale", c_float)]
    )


class LayerShape(Structure):
    """LayerShape in src/layer.h."""

    _fields_ = [
        *((name, c_long) for name in ("tokens", "outputs", "width", "inner")),
        ("rows", _PTR),
        ("activation", c_int),
        *((name, c_float) for name in ("epsilon", "dropout", "attention_dropout")),
        ("seed", c_uint64),
        ("attention", AttentionShape),
    ]


MATRICES = ("q", "k", "v", "out", "inner", "outer")
PARAMETERS = (*MATRICES, *(f"{name}_bias" for name in MATRICES), "gain1", "offset1", "gain2", "offset2")


class LayerParameters(Structure):
    """LayerWeights and LayerGradients in src/layer.h."""

    _fields_ = [(name, _PTR) for name in PARAMETERS]


class LowRankUpdate(Structure):
    """LowRank in src/low_rank.h."""

    _fields_ = [("a", _PTR), ("b", _PTR), ("rank", c_long)]


class Factors(Structure):
    """Factors in src/low_rank.h."""

    _fields_ = [*((name, _PTR) for name in ("a", "b", "a_grad", "b_grad")), ("rank", c_long), ("scale", c_float)]


class LayerFactors(Structure):
    """LayerFactors in src/layer.h."""

    _fields_ = [(name, Factors) for name in MATRICES]


class AdaptedTokens(Structure):
    """AdaptedRows in src/low_rank.h."""

    _fields_ = [("begin", c_long), ("end", c_long), ("updates", POINTER(LowRankUpdate))]


IDLE_BLOCK = 256  # as in src/adamw.h


class AdamW(Structure):
    """AdamW in src/adamw.h."""

    _fields_ = [
        (name, c_float)
        for name in ("rate", "beta1", "beta2", "epsilon", "decay", "correction1", "correction2", "gradient_scale")
    ]


class Recurrence(Structure):
    """Recurrence in src/recurrent.h."""

    _fields_ = [
        *((name, c_long) for name in ("sequences", "units")),
        *((name, _PTR) for name in ("offsets", "order")),
        ("backward", c_int),
        ("begin", _PTR),
    ]


class SampleNetwork(Structure):
    """Network in src/sampling.h."""

    _fields_ = [
        *((name, c_long) for name in ("layers", "channels", "taps")),
        ("loudness", c_float),
        *((name, _PTR) for name in ("dilations", "first", "mix", "skip_residual", "residual_bias")),
        *((name, _PTR) for name in ("inner", "inner_bias", "out", "out_bias")),
    ]


class DilatedLayer(Structure):
    """GatedLayer in src/dilated.h."""

    _fields_ = [
        *((name, c_long) for name in ("channels", "taps", "features", "skips", "dilation")),
        *((name, _PTR) for name in ("mix", "mix_bias", "skip", "residual", "residual_bias")),
    ]


class WaveNet(Structure):
    """WaveNet in src/dilated.h."""

    _fields_ = [
        *(("layers", c_long), ("layer", POINTER(DilatedLayer)), ("outputs", c_long)),
        *((name, _PTR) for name in ("first", "first_bias", "inner", "inner_bias", "out", "out_bias")),
    ]


_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "product": (
        *(c_int, *(c_long,) * 3, _PTR, c_long, c_int, _PTR, c_long, c_int, _PTR, _PTR),
        *(c_int, c_long, c_int, c_int),
    ),
    "attention_forward": (c_int, POINTER(AttentionShape), c_float, c_uint64, *(_PTR,) * 5),
    "attention_over_runs": (POINTER(AttentionShape), c_float, c_uint64, *(_PTR,) * 6),
    "attention_backward": (c_int, POINTER(AttentionShape), c_float, c_uint64, *(_PTR,) * 9),
    "layer_bytes": (c_int, POINTER(LayerShape), POINTER(c_long)),
    "layer_forward": (c_int, POINTER(LayerShape), POINTER(LayerParameters), _PTR, _PTR, _PTR),
    "layer_backward": (
        c_int,
        POINTER(LayerShape),
        POINTER(LayerParameters),
        _PTR,
        _PTR,
        POINTER(LayerParameters),
        POINTER(LayerFactors),
        _PTR,
    ),
    "add_norm": (*(_PTR,) * 4, c_float, c_float, c_uint64, c_long, c_long, *(_PTR,) * 3),
    "add_norm_backward": (*(_PTR,) * 4, c_float, c_uint64, c_long, c_long, *(_PTR,) * 4),
    "activate": (c_int, _PTR, _PTR, c_long),
    "activate_backward": (c_int, _PTR, _PTR, c_long, c_long, _PTR),
    "gate": (_PTR, c_long, c_long, _PTR),
    "gated_forward": (POINTER(DilatedLayer), *(c_long,) * 4, _PTR, _PTR, c_int, *(_PTR,) * 3),
    "gated_backward": (POINTER(DilatedLayer), *(c_long,) * 3, *(_PTR,) * 5),
    "gru_forward": (POINTER(Recurrence), *(_PTR,) * 5),
    "gru_backward": (POINTER(Recurrence), *(_PTR,) * 7),
    "draw": (POINTER(SampleNetwork), c_long, c_long, *(_PTR,) * 5),
    "wavenet": (POINTER(WaveNet), *(c_long,) * 3, *(_PTR,) * 5),
    "gaussian_attention": (c_long, _PTR, c_long, *(_PTR,) * 6),
    "column_sum": (c_int, _PTR, c_long, c_long, _PTR),
    "drop": (_PTR, c_float, c_uint64, c_long, c_long, _PTR),
    "copy_runs": (c_long, *(_PTR,) * 3),
    "gather_sum": (c_int, _PTR, _PTR, c_long, c_long, _PTR),
    "scatter_add": (c_int, _PTR, _PTR, c_long, c_long, _PTR),
    "cross_entropy": (c_int, *(_PTR,) * 3, c_long, c_long, *(_PTR,) * 3),
    "scale": (c_int, _PTR, c_long, c_float),
    "convert": (_PTR, _PTR, c_long, c_long),
    "adamw": (POINTER(AdamW), *(_PTR,) * 6, c_long),
    "set_from_factors": (*(_PTR,) * 5, *(c_long,) * 3, c_float),
    "squares": (_PTR, c_long, POINTER(c_double)),
    "stack_new": (c_int, c_long, c_long, c_long, c_int, c_float, POINTER(LayerParameters), POINTER(_PTR)),
    "stack_is_of": (_PTR, POINTER(LayerParameters), POINTER(c_int)),
    "stack_run": (
        *(_PTR, POINTER(LayerShape), POINTER(LayerShape), POINTER(LayerParameters)),
        *(c_long, POINTER(AdaptedTokens), _PTR, _PTR),
    ),
    "stack_delete": (_PTR,),
    "fingerprint": (_PTR, c_long, c_long, POINTER(c_uint64)),
    "peak": (c_int, c_long, POINTER(c_double)),
    "granted_threads": (POINTER(c_int),),
    "try_products": (),
}


@dataclass(frozen=True)
class Library:
    """The loaded kernels; `has_bf16` says whether they compute in bfloat16."""

    variant: str
    path: Path
    handle: ctypes.CDLL

    @property
    def has_bf16(self) -> bool:
        return self.variant == "avx512_bf16"

    def call(self, name: str, *arguments: Any) -> None:
        """Run a kernel.  Raises RuntimeError with its message if it fails."""
        enter()
        message = getattr(self.handle, f"ernie_{name}")(*arguments)
        if message is not None:
            raise RuntimeError(f"kernel {name}: {message.decode()}")


@cache
def library() -> Library | None:
    """Return the kernels for this machine, built if need be; if there are none, warn once why and return None."""
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
    """Return the kernels for this machine, built if need be, or the reason why there are none."""
    wanted, variants = _wanted(), runnable(processor_flags())
    if wanted == "reference":
        return CannotBuild("ERNIE_KERNELS is set to 'reference'")
    if not variants:
        return CannotBuild("they need Linux and a processor with AVX2")
    if wanted and wanted not in variants:
        raise UserError(f"ERNIE_KERNELS: this processor cannot run {wanted}, only {', '.join(variants)}")
    try:
        _load_dependencies()
        return _tried(_best(variants, wanted))
    except CannotBuild as reason:
        return reason


def _best(variants: list[str], wanted: str) -> Library:
    reasons: dict[str, CannotBuild] = {}
    for variant in [wanted] if wanted else variants:
        found = _existing(variant)
        if found is None and not wanted and has_failed(variant):
            continue
        try:
            found = found or _compiled(variant)
        except CannotBuild as reason:
            reasons[variant] = reason
            continue
        _report_fallback(variant, reasons)
        return found
    raise next(iter(reasons.values()))


def _tried(kernels: Library) -> Library:
    """Compare a few products with plain loops, in about a millisecond, and note if OpenMP grants fewer threads.

    Raises CannotBuild if they are wrong with one thread, too.
    """
    granted, asked = c_int(), threads()
    kernels.call("granted_threads", byref(granted))
    fewer = f"OpenMP grants {granted.value} of {asked} threads: a variable such as KMP_DEVICE_THREAD_LIMIT is set"
    for note in (note_on_threads(), fewer if granted.value < asked else ""):
        if note:
            warnings.warn(note, Remark, stacklevel=2)
    for count in (granted.value, 1):
        kernels.handle.ernie_kernels_threads(count)
        try:
            kernels.call("try_products")
        except RuntimeError as error:
            if count == 1:
                raise CannotBuild(f"they compute wrongly here ({error})") from None
            warnings.warn(f"with {count} threads, {error}: computing with one thread", Remark, stacklevel=2)
        else:
            break
    return kernels


def _report_fallback(chosen: str, reasons: dict[str, CannotBuild]) -> None:
    """Warn once that a better variant could not be built, for instance by an old compiler."""
    if not reasons:
        return
    better, reason = next(iter(reasons.items()))
    retry = f"another compiler, or ERNIE_KERNELS={better}, makes it try again"
    warnings.warn(f"using the {chosen} kernels, because {reason}; {retry}", Remark, stacklevel=2)
    for variant, failure in reasons.items():
        if failure.details:  # there is a compiler, but it failed
            remember_failure(variant)


def _wanted() -> str:
    wanted = os.environ.get("ERNIE_KERNELS", "")
    if wanted and wanted != "reference" and wanted not in VARIANTS:
        raise UserError(f"ERNIE_KERNELS: '{wanted}' is not one of reference, {', '.join(VARIANTS)}")
    return wanted


def _existing(variant: str) -> Library | None:
    """Load the library that came with the wheel or was built before, if any.

    A library that was built on a system with a newer C library does not load here, and is rebuilt.  So is a truncated
    one, and one that another user may have put there.
    """
    shipped, built = SHIPPED / f"{variant}.so", cached(variant)
    if is_whole(shipped) and (found := _open(variant, shipped)):
        return found
    return _open(variant, built) if is_private(built) and is_whole(built) else None


def _compiled(variant: str) -> Library:
    warnings.warn("compiling the C++ kernels for this processor, once: about ten seconds", Remark, stacklevel=2)
    try:
        path = build(variant, cached(variant))
    except CannotBuild as reason:
        if reason.details or compiler() is None:  # not for want of a folder
            raise
        return _compiled_for_now(variant, reason)
    if (found := _open(variant, path)) is None:
        raise CannotBuild(f"{path} cannot be loaded; set XDG_CACHE_HOME to a folder from which programs may be run")
    return found


def _compiled_for_now(variant: str, reason: CannotBuild) -> Library:
    """Compile the kernels for this process only, which the system keeps loaded when their file is deleted."""
    with tempfile.TemporaryDirectory(prefix="ernie-kernels-") as folder:
        found = _open(variant, build(variant, Path(folder) / f"{variant}.so"))
    if found is None:
        raise reason
    warnings.warn(f"the C++ kernels are compiled anew by each process, because {reason}", Remark, stacklevel=2)
    return found


def _open(variant: str, path: Path) -> Library | None:
    try:
        return _bind(variant, path, ctypes.CDLL(str(path)))
    except (OSError, AttributeError):  # it does not load, or lacks one of the functions
        return None


def _load_dependencies() -> None:
    """Make the symbols of two libraries of Paddle's visible: oneDNN, and the OpenMP runtime that it shares with us."""
    for name in ("libiomp5.so", "libdnnl.so.3"):
        path = Path(paddle.__file__).parent / "libs" / name
        try:
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise CannotBuild(f"this Paddle has no library {name} that they could use ({error})") from None


def _bind(variant: str, path: Path, handle: ctypes.CDLL) -> Library:
    for name, types in _SIGNATURES.items():
        function = getattr(handle, f"ernie_{name}")
        function.argtypes, function.restype = types, c_char_p
    handle.ernie_kernels_threads(threads())
    return Library(variant, path, handle)

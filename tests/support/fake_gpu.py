"""A GPU for tests on a CPU: the library takes its GPU code, and checked stand-ins compute for Paddle's operators.

Float64 plays the part of bfloat16 and float16: a type that is not float32, in which any mixture with float32 shows, and
that a CPU computes exactly enough to compare results.  A stand-in has the signature of its operator, demands what the
operator demands, and fails where the operator is known to fail.

Of automatic mixed precision, both levels cast products to the lower type.  Level O1 casts softmax, norms and losses to
float32.  Other operators compute in float32 if any of their inputs is, as Paddle promotes them; here only some do.
"""

from __future__ import annotations

import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
import pytest
from paddle import Tensor
from paddle.autograd import PyLayer
from paddle.base import core
from support.kernels.definitions import attention_definition, visible

from ernie.data.batch import Layout
from ernie.kernels import attention as attention_kernel
from ernie.kernels import gpu, precision
from ernie.kernels.layer_norm import layer_norm
from ernie.kernels.mask import Mask

HALF = paddle.float64
_get_flags = paddle.get_flags
_PRODUCTS = ((paddle, "matmul"), (F, "linear"), (paddle._C_ops, "conv2d"))
_IN_FLOAT32 = (
    *((F, name) for name in ("softmax", "log_softmax", "cross_entropy", "binary_cross_entropy_with_logits")),
    *((owner, "layer_norm") for owner in (F, paddle.nn.layer.norm)),
)

_PROMOTED = (
    *((paddle, name) for name in ("concat", "split", "stack", "addmm")),
    *((Tensor, f"__{name}__") for name in ("add", "sub", "mul", "truediv")),
    (F, "conv2d_transpose"),
    (paddle._C_ops, "squared_l2_norm"),
)
_FUSED = (
    (gpu.attention, "flash_attn_unpadded"),
    (gpu.attention, "flashmask_attention"),
    (gpu.linear, "fused_matmul_bias"),
    (paddle._C_ops, "fused_linear_param_grad_add"),
    (gpu.norm, "fused_bias_dropout_residual_layer_norm"),
)


@dataclass
class FakeGpu:
    """What has been asked of the GPU: launches of each fused operator, and copies to and from the device in bytes."""

    capability: tuple[int, int] = (8, 0)
    flash_attention: int = 2
    stand_ins: bool = True  # else Paddle's own operators compute, in bfloat16 (see `support.kernels.fused_operators`)
    launches: Counter[str] = field(default_factory=Counter)
    uploads: list[int] = field(default_factory=list)
    downloads: list[int] = field(default_factory=list)
    _levels: list[str] = field(default_factory=lambda: ["O0"])
    _counts: bool = True

    def forget(self) -> None:
        """Forget what has been asked so far."""
        self.launches.clear()
        self.uploads.clear()
        self.downloads.clear()

    @property
    def half(self) -> Any:
        """The type in the place of bfloat16."""
        return HALF if self.stand_ins else paddle.bfloat16

    @property
    def counts(self) -> bool:
        """Whether what is asked is of the library, and not of a stand-in."""
        return self._counts

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Inside, copies are those of a stand-in or of Paddle, and casts are an operator's own."""
        counts, self._counts = self._counts, False
        try:
            with self.auto_cast(enable=False):
                yield
        finally:
            self._counts = counts

    def copied(self, copies: list[int], size: int) -> None:
        """Count a copy of so many bytes."""
        if self._counts:
            copies.append(size)

    def flags(self, names: str | list[str]) -> dict[str, Any]:
        """Flags of Paddle, with those that only a wheel for GPUs has."""
        known = {"FLAGS_flash_attn_version": self.flash_attention, "FLAGS_cudnn_deterministic": False}
        asked = [names] if isinstance(names, str) else names
        return {name: known[name] if name in known else _get_flags(name)[name] for name in asked}

    # ---- stand-ins for the fused operators ---------------------------------------------------------------------------

    def flash_attn_unpadded(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        cu_seqlens_q: Tensor,
        cu_seqlens_k: Tensor,
        max_seqlen_q: int,
        max_seqlen_k: int,
        scale: float,
        dropout: float = 0.0,
        causal: bool = False,
    ) -> tuple[Tensor, None]:
        self._check_attention(query, key, value)
        layouts = []
        for offsets, longest, rows in (
            (cu_seqlens_q, max_seqlen_q, query.shape[0]),
            (cu_seqlens_k, max_seqlen_k, key.shape[0]),
        ):
            assert offsets.dtype == paddle.int32 and len(offsets.shape) == 1, "offsets are int32 (N + 1,)"
            layouts.append(Layout(np.asarray(offsets.numpy(), np.int64)))
            assert longest == layouts[-1].longest and layouts[-1].tokens == rows
        layout, keys = layouts
        assert not causal or cu_seqlens_q.data_ptr() == cu_seqlens_k.data_ptr(), (
            "the triangle of other keys begins at the last one"
        )
        visible_TS = visible(layout, keys, Mask.causal(layout) if causal else None)
        assert scale == pytest.approx(1 / math.sqrt(query.shape[-1]))
        q, k, v = (x.reshape([x.shape[0], -1]) for x in (query, key, value))
        mixed = attention_definition(q, k, v, visible_TS, query.shape[1], self._dropped(visible_TS, query, dropout))
        return mixed.reshape(query.shape), None

    def flashmask_attention(
        self, query: Tensor, key: Tensor, value: Tensor, startend_row_indices: Tensor, *, dropout: float = 0.0
    ) -> Tensor:
        assert len(query.shape) == 4 and query.shape[0] == 1, "(1, T, H, K)"
        self._check_attention(*(x[0] for x in (query, key, value)))
        assert not dropout or self.flash_attention == 2, "FlashAttention-3 has no dropout with a mask"
        rows = startend_row_indices
        assert rows.dtype == paddle.int32 and rows.shape == [1, 1, key.shape[1], 2], "int32 (1, 1, S, 2)"
        below, above = np.moveaxis(rows.numpy()[0, 0], -1, 0)
        row_T, key_T = np.arange(query.shape[1])[:, None], np.arange(key.shape[1])
        masked_TS = ((row_T >= key_T) & (row_T >= below)) | ((row_T < key_T) & (row_T < above))
        heads = query.shape[2]
        q, k, v = (x.reshape([x.shape[1], -1]) for x in (query, key, value))
        dropped = self._dropped(masked_TS, query[0], dropout)
        return attention_definition(q, k, v, ~masked_TS, heads, dropped).reshape(query.shape)

    def fused_matmul_bias(self, x: Tensor, y: Tensor, bias: Tensor) -> Tensor:
        assert x.dtype == y.dtype == bias.dtype, f"one type, not {x.dtype}, {y.dtype}, {bias.dtype}"
        assert x.is_contiguous() and y.is_contiguous() and bias.is_contiguous()
        assert len(x.shape) == len(y.shape) == 2 and bias.shape == y.shape[1:]
        learns = paddle.is_grad_enabled() and not bias.stop_gradient
        assert not (learns and y.stop_gradient), "the bias of a frozen weight gets no gradient"
        return x @ y + bias

    def fused_bias_dropout_residual_layer_norm(
        self,
        x: Tensor,
        residual: Tensor,
        *,
        ln_scale: Tensor,
        ln_bias: Tensor,
        dropout_rate: float,
        ln_epsilon: float,
    ) -> Tensor:
        assert {each.dtype for each in (x, residual, ln_scale, ln_bias)} == {paddle.float32}, "no kernel for bfloat16"
        assert x.shape == residual.shape and ln_scale.shape == ln_bias.shape == x.shape[-1:]
        frozen = [each.stop_gradient for each in (x, residual, ln_scale, ln_bias)]
        if paddle.is_grad_enabled() and not all(frozen):
            assert not any(frozen[:2]), "the gradient writes to both inputs, and one is frozen"
        return layer_norm(residual + F.dropout(x, dropout_rate), ln_scale, ln_bias, ln_epsilon)

    def fused_linear_param_grad_add(
        self,
        x: Tensor,
        dout: Tensor,
        dweight: Tensor | None,
        dbias: Tensor | None,
        multi_precision: bool,
        has_bias: bool,
    ) -> tuple[Tensor, Tensor | None]:
        assert x.dtype == dout.dtype == HALF and multi_precision and (has_bias or dbias is None)
        assert dweight is None or (dweight.dtype == paddle.float32 and dweight.shape == [x.shape[1], dout.shape[1]])
        assert x.is_contiguous() and dout.is_contiguous() and len(x.shape) == len(dout.shape) == 2
        assert dbias is None or (dbias.dtype == paddle.float32 and dbias.shape == dout.shape[1:])
        bias = dout.sum(0).astype("float32") if has_bias else None
        if bias is not None and dbias is not None:
            bias = dbias + bias
        weight = (x.T @ dout).astype("float32")
        return weight if dweight is None else dweight + weight, bias

    def _check_attention(self, query: Tensor, key: Tensor, value: Tensor) -> None:
        assert self.capability >= (8, 0), "FlashAttention-2 has no code for GPUs before Ampere"
        for each in (query, key, value):
            assert each.dtype == HALF and each.is_contiguous() and len(each.shape) == 3, f"{each.dtype} {each.shape}"
        size = query.shape[-1]
        assert size % 8 == 0 and size <= 256 and key.shape[1:] == value.shape[1:] == query.shape[1:]

    def _dropped(self, pairs_TS: np.ndarray, query: Tensor, dropout: float) -> np.ndarray | None:
        return F.dropout(paddle.ones([query.shape[1], *pairs_TS.shape]), dropout).numpy() if dropout else None

    # ---- automatic mixed precision -----------------------------------------------------------------------------------

    @contextmanager
    def auto_cast(
        self, enable: bool = True, *, dtype: str = "float16", level: str = "O1", **restored: object
    ) -> Iterator[None]:
        """With `restored` lists of operators, as Paddle's recompute gives them, the level stays that of the pass."""
        assert restored or (dtype in ("float16", "bfloat16", "float64") and level in ("O1", "O2"))
        self._levels.append(self._levels[-1] if restored else level if enable else "O0")
        try:
            yield
        finally:
            self._levels.pop()

    def casting(self, operator: Callable[..., Any], at_o1: Any) -> Callable[..., Any]:
        """The operator, which casts its tensors: to this type at level O1, and if it is the lower one also at O2.

        Else it casts them to float32 if one of them has it; of a norm only the first one counts.
        """
        counts = 1 if operator.__name__ == "layer_norm" else None

        @wraps(operator)
        def call(*args: Any, **kwargs: Any) -> Any:
            level = self._levels[-1]
            if level == "O0":
                return operator(*args, **kwargs)
            types = {tensor.dtype for tensor in _tensors([*args, *kwargs.values()][:counts])}
            promoted = paddle.float32 if paddle.float32 in types else self.half
            to = at_o1 if at_o1 and (level == "O1" or at_o1 == self.half) else promoted

            def cast(value: Any) -> Any:
                if isinstance(value, list | tuple):
                    return [cast(each) for each in value]
                casts = isinstance(value, Tensor) and value.dtype in (paddle.float32, self.half)
                return value.astype(to) if casts else value

            return operator(*map(cast, args), **{name: cast(value) for name, value in kwargs.items()})

        return call


class _Place(core.Place):  # type: ignore[misc]
    """The place of every tensor: the CPU to Paddle, a GPU to whoever asks."""

    def __init__(self) -> None:
        super().__init__()
        self.set_place(core.CPUPlace())

    def is_cpu_place(self) -> bool:
        return False

    def is_gpu_place(self) -> bool:
        return True


class _PinnedPlace:
    """Where memory of the host lies that a GPU reads by itself."""


@contextmanager
def fake_gpu(**settings: Any) -> Iterator[FakeGpu]:
    """Inside, tensors are on a GPU as far as this library can tell."""
    made = FakeGpu(**settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "place", property(lambda tensor: _Place()))
        patch.setattr(paddle, "get_device", lambda: "gpu:0")
        patch.setattr(paddle.device.cuda, "max_memory_allocated", lambda: 0)
        patch.setattr(core, "gpu_memory_available", lambda: math.inf, raising=False)  # asked before a conversion
        patch.setattr(paddle.amp, "is_bfloat16_supported", lambda: made.capability >= (8, 0))
        patch.setattr(gpu.attention, "get_device_capability", lambda: made.capability)
        for owner in (paddle, paddle.base.framework):
            patch.setattr(owner, "get_flags", made.flags)
        patch.setattr(paddle.amp, "auto_cast", made.auto_cast)
        for names, kind in ((_PRODUCTS, made.half), (_IN_FLOAT32, paddle.float32), (_PROMOTED, None)):
            for owner, name in names:
                patch.setattr(owner, name, made.casting(getattr(owner, name), kind))
        if made.stand_ins:
            patch.setattr(precision, "_TYPES", {"fp32": "float32", "bf16": "float64", "fp16": "float64"})
            for owner, name in _FUSED:
                patch.setattr(owner, name, _counted(made, name, getattr(owner, name)))
        patch.setattr(paddle, "to_tensor", _uploading(made, paddle.to_tensor))
        patch.setattr(paddle, "CUDAPinnedPlace", _PinnedPlace)
        patch.setattr(Tensor, "cuda", _sent(made))
        for name in ("numpy", "__float__", "__int__", "__bool__", "item", "tolist"):
            patch.setattr(Tensor, name, _downloading(made, getattr(Tensor, name)))
        for cache in (gpu.attention._offsets, gpu.attention._plan, attention_kernel._bias_on_device):
            cache.cache_clear()
        yield made


def _counted(made: FakeGpu, name: str, operator: Callable[..., Any]) -> Callable[..., Any]:
    """The stand-in of an operator, which takes only arguments that the operator takes, and counts the calls."""
    stand_in = getattr(made, name)
    try:
        signature = inspect.signature(operator)
    except ValueError:  # an operator of C++ has none
        signature = inspect.signature(stand_in)

    def call(*args: Any, **kwargs: Any) -> Any:
        signature.bind(*args, **kwargs)
        made.launches[name] += 1
        names = [*range(len(args)), *kwargs]
        values = dict(zip(names, [*args, *kwargs.values()], strict=True))
        tensors = {key: value for key, value in values.items() if isinstance(value, Tensor)}

        def compute(*given: Tensor) -> Any:
            every = {**values, **dict(zip(tensors, given, strict=True))}
            with made.inside():
                return stand_in(*(every[key] for key in range(len(args))), **{key: every[key] for key in kwargs})

        return _OneOperator.apply(made, compute, paddle.is_grad_enabled(), *tensors.values())

    return call


class _OneOperator(PyLayer):
    """A computation that is a single operator, as is its gradient."""

    @staticmethod
    def forward(ctx, made, compute, learns, *tensors):  # type: ignore[no-untyped-def]
        ctx.made, ctx.inputs = made, [tensor.detach() for tensor in tensors]
        for own, tensor in zip(ctx.inputs, tensors, strict=True):
            own.stop_gradient = tensor.stop_gradient
        with paddle.set_grad_enabled(learns):
            result = compute(*ctx.inputs)
        ctx.result = result[0] if isinstance(result, tuple) else result
        if isinstance(result, tuple):
            return tuple(part if part is None else part.detach() for part in result)
        return result.detach()

    @staticmethod
    def backward(ctx, grad, *_):  # type: ignore[no-untyped-def]
        wanted = [tensor for tensor in ctx.inputs if not tensor.stop_gradient]
        with ctx.made.inside():
            grads = iter(paddle.grad(ctx.result, wanted, grad, retain_graph=True, allow_unused=True))
            return tuple(None if tensor.stop_gradient else next(grads) for tensor in ctx.inputs)


def _tensors(values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _uploading(made: FakeGpu, to_tensor: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @wraps(to_tensor)
    def call(data: Any, *args: Any, **kwargs: Any) -> Tensor:
        if isinstance(kwargs.get("place"), _PinnedPlace):
            return to_tensor(data, *args, **{**kwargs, "place": None})
        if not isinstance(data, Tensor) and not isinstance(kwargs.get("place"), core.CPUPlace):
            made.copied(made.uploads, np.asarray(data).nbytes)
        return to_tensor(data, *args, **kwargs)

    return call


def _sent(made: FakeGpu) -> Callable[..., Tensor]:
    def cuda(tensor: Tensor, device_id: int | None = None, blocking: bool = True) -> Tensor:
        assert not blocking, "the copy waits for all that the GPU computes"
        made.copied(made.uploads, tensor.size * tensor.element_size())
        return tensor

    return cuda


def _downloading(made: FakeGpu, read: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(read)
    def call(tensor: Tensor, *args: Any) -> Any:
        made.copied(made.downloads, tensor.size * tensor.element_size())
        with made.inside():  # Paddle implements some by others
            return read(tensor, *args)

    return call


def noting_types(seen: list[object], operator: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The operator, which notes the type that it gives its result."""

    def call(*args: Any, **kwargs: Any) -> Tensor:
        found = operator(*args, **kwargs)
        seen.append(found.dtype)
        return found

    return call

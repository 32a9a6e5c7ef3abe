"""CPU implementation of ernie.kernels.layer.  Legend: T packed tokens, D width, F inner width."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_long

import numpy as np
import paddle
from paddle import Tensor
from paddle.autograd import PyLayer

from ernie.data.batch import Layout
from ernie.kernels.argument_checks import ACTIVATIONS
from ernie.kernels.cpu.call import Shape, byref, loaded, seed_of
from ernie.kernels.cpu.copies import bf16_copy, invalidate
from ernie.kernels.cpu.library import Factors as FactorsStructure
from ernie.kernels.cpu.library import LayerFactors, LayerParameters, LayerShape
from ernie.kernels.cpu.pool import empty, empty_like
from ernie.kernels.mask import Mask
from ernie.kernels.precision import is_low
from ernie.kernels.types import Factors, LayerSettings, LayerWeights


def transformer_layer(
    x_TD: Tensor,
    layout: Layout,
    weights: LayerWeights,
    settings: LayerSettings,
    mask: Mask | None,
    rows: np.ndarray | None,
    factors: Mapping[str, Factors],
) -> Tensor:
    """As ernie.kernels.layer.reference, in one call."""
    learned = [tensor for a, b, _ in factors.values() for tensor in (a, b)]
    return _Layer.apply(x_TD, *weights, *learned, layout, settings, mask, rows, factors)


class _Layer(PyLayer):
    @staticmethod
    def forward(ctx, x, *rest):  # type: ignore[no-untyped-def]
        *tensors, layout, settings, mask, rows, factors = rest
        parameters = tensors[: len(LayerWeights._fields)]
        call = _Call(x, parameters, layout, settings, mask, rows)
        y = empty_like(x)
        call.forward(x, y)
        ctx.call = call
        ctx.parameters, ctx.factors = parameters, factors
        ctx.frozen = [tensor.stop_gradient for tensor in (x, *parameters)]
        return y

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        grads = [
            None if frozen and parameter.ndim > 1 else empty_like(parameter)
            for parameter, frozen in zip(ctx.parameters, ctx.frozen[1:], strict=True)
        ]
        dx = None if ctx.frozen[0] else empty_like(grad)
        factor_grads = [(empty_like(a), empty_like(b)) for a, b, _ in ctx.factors.values()]
        ctx.call.backward(grad, grads, _factors(ctx.factors, factor_grads), dx)
        invalidate(p for p, frozen in zip(ctx.parameters, ctx.frozen[1:], strict=True) if not frozen)
        found = [None if frozen else g for frozen, g in zip(ctx.frozen, (dx, *grads), strict=True)]
        return tuple(found) + tuple(g for pair in factor_grads for g in pair)


def _factors(factors: Mapping[str, Factors], grads: list[tuple[Tensor, Tensor]]) -> LayerFactors:
    structure = LayerFactors()
    for (name, (a, b, scale)), pair in zip(factors.items(), grads, strict=True):
        addresses = (tensor.data_ptr() for tensor in (a, b, *pair))
        setattr(structure, name, FactorsStructure(*addresses, a.shape[1], scale))
    return structure


class _Call:
    """One layer on one batch: its shape as a C structure, and what the backward pass needs."""

    def __init__(
        self,
        x: Tensor,
        parameters: list[Tensor],
        layout: Layout,
        settings: LayerSettings,
        mask: Mask | None,
        rows: np.ndarray | None,
    ) -> None:
        T, D = x.shape
        self._attention = Shape(layout, layout, settings.heads, D, mask, rows)  # keeps its arrays alive
        self._rows = rows
        self._shape = LayerShape(
            T,
            T if self._rows is None else len(self._rows),
            D,
            parameters[4].shape[1],
            None if self._rows is None else self._rows.ctypes.data,
            ACTIVATIONS[settings.activation],
            settings.epsilon,
            settings.dropout,
            settings.attention_dropout,
            seed_of(settings.dropout + settings.attention_dropout),
            self._attention.structure,
        )
        self._low = int(is_low())
        self._parameters = [bf16_copy(p) if self._low and p.ndim > 1 else p for p in parameters]
        size = c_long()
        loaded().call("layer_bytes", self._low, byref(self._shape), byref(size))
        self._memory = empty([size.value], paddle.uint8)

    def forward(self, x: Tensor, y: Tensor) -> None:
        memory = self._memory.data_ptr()
        loaded().call(
            "layer_forward", self._low, byref(self._shape), byref(self._weights()), x.data_ptr(), memory, y.data_ptr()
        )

    def backward(self, grad: Tensor, grads: list[Tensor | None], factors: LayerFactors, dx: Tensor | None) -> None:
        gradients = LayerParameters(*(None if g is None else g.data_ptr() for g in grads))
        dx_address = None if dx is None else dx.data_ptr()
        structures = (byref(self._shape), byref(self._weights()))
        addresses = (self._memory.data_ptr(), grad.data_ptr())
        loaded().call(
            "layer_backward", self._low, *structures, *addresses, byref(gradients), byref(factors), dx_address
        )

    def _weights(self) -> LayerParameters:
        # Read in both passes: sharded weights are released in between and come back at another address.
        return LayerParameters(*(parameter.data_ptr() for parameter in self._parameters))

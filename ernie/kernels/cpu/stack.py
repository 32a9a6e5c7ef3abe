"""CPU implementation of ernie.kernels.stack.  Legend: T packed tokens, D width."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from ctypes import c_int, c_void_p
from typing import TYPE_CHECKING

import numpy as np
from paddle import Tensor

from ernie.data.batch import Layout
from ernie.errors import UserError
from ernie.kernels.check import ACTIVATIONS, check_activation, check_attention, check_layer, check_layout
from ernie.kernels.cpu.call import Shape, byref, loaded, output_rows
from ernie.kernels.cpu.library import LayerParameters, LayerShape
from ernie.kernels.cpu.pool import empty_like
from ernie.kernels.precision import current

if TYPE_CHECKING:
    from ernie.kernels.layer import LayerSettings, LayerWeights

_MATRICES = 6  # the first of a layer's weights
_KINDS = {"fp32": 0, "bf16": 1, "int8": 2}  # as in src/packed.h


class PackedStack:
    """The weights of some layers, packed by C++ for the precision that was active."""

    def __init__(self) -> None:
        self._key: object = None
        self._handle: c_void_p | None = None
        self._parameters: object = None
        self._delete: Callable[[], object] = lambda: None
        self._lock = threading.Lock()

    def __deepcopy__(self, memo: object) -> PackedStack:
        return PackedStack()  # packs the copied model's own weights

    def __reduce__(self) -> tuple[type[PackedStack], tuple[()]]:
        return PackedStack, ()

    def __call__(
        self,
        x_TD: Tensor,
        layout: Layout,
        layers: Sequence[LayerWeights],
        settings: LayerSettings,
        rows: np.ndarray | None,
    ) -> Tensor:
        """As ernie.kernels.stack.reference."""
        T, D = x_TD.shape
        check_activation(settings.activation)
        check_layout(layout, T)
        check_attention(layout, D, settings.heads, None)
        attention = Shape(layout, layout, settings.heads, D, None)
        last_attention = attention if rows is None else Shape(layout, layout, settings.heads, D, None, rows)
        tokens = None if rows is None else output_rows(rows, T)
        common = (layers[0].inner.shape[1], ACTIVATIONS[settings.activation], settings.epsilon, 0.0, 0.0, 0)
        shape = LayerShape(T, T, D, common[0], None, *common[1:], attention.structure)
        last = shape
        if tokens is not None:
            last = LayerShape(T, len(tokens), D, common[0], tokens.ctypes.data, *common[1:], last_attention.structure)
        y_TD = empty_like(x_TD)
        addresses = (x_TD.data_ptr(), y_TD.data_ptr())
        with self._lock:
            self._repack_if_stale(x_TD, layers, settings)
            loaded().call("stack_run", self._handle, byref(shape), byref(last), self._parameters, *addresses)
        return y_TD

    def _repack_if_stale(self, x_TD: Tensor, layers: Sequence[LayerWeights], settings: LayerSettings) -> None:
        tensors = [weight for layer in layers for weight in layer]
        key = (
            current(),
            settings,
            x_TD.shape[1],
            [tensor.data_ptr() for tensor in tensors],
            [tensor.inplace_version for layer in layers for tensor in layer[:_MATRICES]],
        )
        # Paddle's own optimizers do not change a weight's version: C++ also compares fingerprints of the weights.
        if key == self._key and self._is_current():
            return
        _check(x_TD, layers)
        self._key = None
        self._delete()
        pointers = key[3]
        size = len(pointers) // len(layers)
        structures = [LayerParameters(*pointers[first : first + size]) for first in range(0, len(pointers), size)]
        self._parameters = (LayerParameters * len(layers))(*structures)
        D, F = layers[0].inner.shape
        handle = c_void_p()
        kind, activation = _KINDS[current()], ACTIVATIONS[settings.activation]
        loaded().call(
            "stack_new", kind, len(layers), D, F, activation, settings.epsilon, self._parameters, byref(handle)
        )
        self._handle, self._key = handle, key
        self._delete = weakref.finalize(self, loaded().call, "stack_delete", handle)

    def _is_current(self) -> bool:
        answer = c_int()
        loaded().call("stack_is_of", self._handle, self._parameters, byref(answer))
        return bool(answer.value)


def _check(x_TD: Tensor, layers: Sequence[LayerWeights]) -> None:
    # Only when packing: at each call, it would be noticeable for short texts.
    for layer in layers:
        check_layer(x_TD, layer)
        other = next((weight for weight in layer if weight.dtype != x_TD.dtype), None)
        if other is not None:
            raise UserError(f"the layers' weights are {other.dtype}, their inputs {x_TD.dtype}: cast one of them")

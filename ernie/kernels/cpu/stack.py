"""CPU body of ernie.kernels.stack.  Legend: T packed tokens, D width."""

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
from ernie.kernels.check import check_attention, check_layer, check_layout
from ernie.kernels.cpu.call import ACTIVATIONS, Shape, asked_rows, byref, loaded
from ernie.kernels.cpu.library import LayerParameters, LayerShape
from ernie.kernels.cpu.room import empty_like
from ernie.kernels.precision import current

if TYPE_CHECKING:
    from ernie.kernels.layer import LayerSettings, LayerWeights

_MATRICES = 6  # of a layer's weights, the first ones
_KINDS = {"fp32": 0, "bf16": 1, "int8": 2}  # as in src/packed.h


class PackedStack:
    """The weights of some layers as C++ has laid them out, for the precision that was in force."""

    def __init__(self) -> None:
        self._made_of: object = None
        self._handle: c_void_p | None = None
        self._parameters: object = None
        self._delete: Callable[[], object] = lambda: None
        self._busy = threading.Lock()

    def __deepcopy__(self, memo: object) -> PackedStack:
        return PackedStack()  # of the copy's own weights

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
        check_layout(layout, T)
        check_attention(layout, D, settings.heads, None)
        whole = Shape(layout, layout, settings.heads, D, None)
        asked = whole if rows is None else Shape(layout, layout, settings.heads, D, None, rows)
        numbers = None if rows is None else asked_rows(rows, T)
        common = (layers[0].inner.shape[1], ACTIVATIONS[settings.activation], settings.epsilon, 0.0, 0.0, 0)
        shape = LayerShape(T, T, D, common[0], None, *common[1:], whole.structure)
        last = shape
        if numbers is not None:
            last = LayerShape(T, len(numbers), D, common[0], numbers.ctypes.data, *common[1:], asked.structure)
        y_TD = empty_like(x_TD)
        addresses = (x_TD.data_ptr(), y_TD.data_ptr())
        with self._busy:
            self._renew(x_TD, layers, settings)
            loaded().call("stack_run", self._handle, byref(shape), byref(last), self._parameters, *addresses)
        return y_TD

    def _renew(self, x_TD: Tensor, layers: Sequence[LayerWeights], settings: LayerSettings) -> None:
        tensors = [weight for layer in layers for weight in layer]
        made_of = (
            current(),
            settings,
            x_TD.shape[1],
            [tensor.data_ptr() for tensor in tensors],
            [tensor.inplace_version for layer in layers for tensor in layer[:_MATRICES]],
        )
        # Paddle's own optimizers change weights without a new version: C++ looks at some elements of some rows.
        if made_of == self._made_of and self._is_still_of():
            return
        _check(x_TD, layers)
        self._made_of = None
        self._delete()
        pointers = made_of[3]
        size = len(pointers) // len(layers)
        structures = [LayerParameters(*pointers[first : first + size]) for first in range(0, len(pointers), size)]
        self._parameters = (LayerParameters * len(layers))(*structures)
        D, F = layers[0].inner.shape
        handle = c_void_p()
        kind, activation = _KINDS[current()], ACTIVATIONS[settings.activation]
        loaded().call(
            "stack_new", kind, len(layers), D, F, activation, settings.epsilon, self._parameters, byref(handle)
        )
        self._handle, self._made_of = handle, made_of
        self._delete = weakref.finalize(self, loaded().call, "stack_delete", handle)

    def _is_still_of(self) -> bool:
        answer = c_int()
        loaded().call("stack_is_of", self._handle, self._parameters, byref(answer))
        return bool(answer.value)


def _check(x_TD: Tensor, layers: Sequence[LayerWeights]) -> None:
    # Here and not at each call, which for short texts would be felt.
    for layer in layers:
        check_layer(x_TD, layer)
        odd = next((weight for weight in layer if weight.dtype != x_TD.dtype), None)
        if odd is not None:
            raise UserError(f"the layers' weights are of {odd.dtype}, their inputs of {x_TD.dtype}: cast one of them")

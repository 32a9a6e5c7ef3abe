"""CPU implementation of ernie.kernels.stack.  Legend: T packed tokens, D width."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from ctypes import c_int, c_void_p
from typing import Any

import numpy as np
from paddle import Tensor

from ernie.data.batch import Layout
from ernie.errors import UserError
from ernie.kernels.argument_checks import ACTIVATIONS, check_layer
from ernie.kernels.cpu.call import Shape, byref, loaded
from ernie.kernels.cpu.library import MATRICES, AdaptedTokens, LayerParameters, LayerShape, LowRankUpdate
from ernie.kernels.cpu.pool import empty_like
from ernie.kernels.precision import current
from ernie.kernels.types import Adapted, LayerSettings, LayerWeights

_KINDS = {"fp32": 0, "bf16": 1, "int8": 2}  # as in src/packed.h


class PackedStack:
    """The weights of some layers, packed by C++ for the precision that was active.

    Several threads may call it at once: only packing is under a lock.
    """

    def __init__(self) -> None:
        self._packed: _Packed | None = None
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
        adapted: Sequence[Adapted],
    ) -> Tensor:
        """As ernie.kernels.stack.reference."""
        T, D = x_TD.shape
        attention = Shape(layout, layout, settings.heads, D, None)
        last_attention = attention if rows is None else Shape(layout, layout, settings.heads, D, None, rows)
        common = (layers[0].inner.shape[1], ACTIVATIONS[settings.activation], settings.epsilon, 0.0, 0.0, 0)
        shape = LayerShape(T, T, D, common[0], None, *common[1:], attention.structure)
        last = shape
        if rows is not None:
            last = LayerShape(T, len(rows), D, common[0], rows.ctypes.data, *common[1:], last_attention.structure)
        y_TD = empty_like(x_TD)
        addresses = (x_TD.data_ptr(), y_TD.data_ptr())
        packed = self._current(x_TD, layers, settings)
        parts = (AdaptedTokens * len(adapted))(*map(_adapted_tokens, adapted))
        run = (packed.handle, byref(shape), byref(last), packed.parameters, len(adapted), parts)
        loaded().call("stack_run", *run, *addresses)
        return y_TD

    def _current(self, x_TD: Tensor, layers: Sequence[LayerWeights], settings: LayerSettings) -> _Packed:
        """Return the packed weights, packed again if they have changed; other threads may still run the old."""
        key = (
            current(),
            settings,
            x_TD.shape[1],
            [tensor.data_ptr() for layer in layers for tensor in layer],
            [tensor.inplace_version for layer in layers for tensor in layer[: len(MATRICES)]],
        )
        packed = self._packed
        if packed is not None and packed.is_of(key):
            return packed
        with self._lock:
            packed = self._packed
            if packed is None or not packed.is_of(key):  # otherwise another thread has just packed them
                _check(x_TD, layers)
                self._packed = None  # before the new ones take memory
                packed = None
                packed = self._packed = _Packed(key, layers, settings)
            return packed


def _adapted_tokens(adapted: Adapted) -> AdaptedTokens:
    """Return tokens and their updates as the kernels take them; the arrays are only referred to."""
    layers = adapted.layers
    if layers.native is None:
        found = [updates.get(name) for updates in layers for name in MATRICES]
        structures = [
            LowRankUpdate(update.a.ctypes.data, update.b.ctypes.data, update.a.shape[1]) if update else LowRankUpdate()
            for update in found
        ]
        layers.native = (LowRankUpdate * len(structures))(*structures)
    return AdaptedTokens(adapted.start, adapted.stop, layers.native)


class _Packed:
    """Packed weights of layers, freed once nothing refers to them; the `key` says what they were packed from."""

    def __init__(self, key: tuple[Any, ...], layers: Sequence[LayerWeights], settings: LayerSettings):
        self._key, pointers = key, key[3]
        size = len(pointers) // len(layers)
        structures = [LayerParameters(*pointers[first : first + size]) for first in range(0, len(pointers), size)]
        self.parameters = (LayerParameters * len(layers))(*structures)
        D, F = layers[0].inner.shape
        self.handle = c_void_p()
        kind, activation = _KINDS[key[0]], ACTIVATIONS[settings.activation]
        loaded().call(
            "stack_new", kind, len(layers), D, F, activation, settings.epsilon, self.parameters, byref(self.handle)
        )
        weakref.finalize(self, loaded().call, "stack_delete", self.handle)

    def is_of(self, key: tuple[Any, ...]) -> bool:
        """Whether these weights are those of the key, unchanged."""
        if key != self._key:
            return False
        # Paddle's own optimizers do not change a weight's version: C++ also compares fingerprints of the weights.
        answer = c_int()
        loaded().call("stack_is_of", self.handle, self.parameters, byref(answer))
        return bool(answer.value)


def _check(x_TD: Tensor, layers: Sequence[LayerWeights]) -> None:
    # Only when packing: at each call, it would be noticeable for short texts.
    for layer in layers:
        check_layer(x_TD, layer)
        other = next((weight for weight in layer if weight.dtype != x_TD.dtype), None)
        if other is not None:
            raise UserError(f"the layers' weights are {other.dtype}, their inputs {x_TD.dtype}: cast one of them")

"""A stack of Transformer layers for inference.  Legend: T packed tokens, D width."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from paddle import Tensor

from ernie.data.batch import Layout
from ernie.kernels import cpu
from ernie.kernels.layer import LayerSettings, LayerWeights, transformer_layer


class TransformerStack:
    """Layers one after the other, without dropout and gradients.

    Where the machine has a body for it, the weights are laid out for it at the first call and again when they have
    changed; keep the object.
    """

    def __init__(self) -> None:
        self._packed = cpu.stack.PackedStack()

    def __call__(
        self,
        x_TD: Tensor,
        layout: Layout,
        layers: Sequence[LayerWeights],
        settings: LayerSettings,
        rows: np.ndarray | None = None,
    ) -> Tensor:
        """The output of the last layer, (T, D) -> (T, D); with `rows`, ascending, at those tokens, elsewhere zero."""
        body = self._packed if cpu.serves(x_TD) else reference
        return body(x_TD, layout, layers, settings, rows)


def reference(
    x_TD: Tensor, layout: Layout, layers: Sequence[LayerWeights], settings: LayerSettings, rows: np.ndarray | None
) -> Tensor:
    """What the stack is."""
    for number, weights in enumerate(layers, 1):
        x_TD = transformer_layer(x_TD, layout, weights, settings, rows=rows if number == len(layers) else None)
    return x_TD

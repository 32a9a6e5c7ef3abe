"""A stack of Transformer layers for inference.  Legend: T packed tokens, D width."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from paddle import Tensor

from ernie.data.batch import Layout
from ernie.errors import UserError
from ernie.kernels import cpu
from ernie.kernels.argument_checks import check_activation, check_attention, check_layout, output_rows
from ernie.kernels.choose import choose
from ernie.kernels.layer import transformer_layer
from ernie.kernels.types import LayerSettings, LayerWeights


class TransformerStack:
    """Layers one after the other, without dropout and gradients.

    The C++ kernel, where available, packs the weights at the first call and again when they have changed: reuse the
    object.
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
        """Return the output of the last layer, (T, D) -> (T, D); with `rows` (ascending), zero but at those tokens.

        Raises UserError if the shapes do not fit.
        """
        if not layers:
            raise UserError("layers: expected at least one layer")
        check_activation(settings.activation)
        check_layout(layout, x_TD.shape[0])
        check_attention(layout, x_TD.shape[1], settings.heads, None)
        rows = None if rows is None else output_rows(rows, layout.tokens)
        return choose((x_TD,), reference, self._packed)(x_TD, layout, layers, settings, rows)


def reference(
    x_TD: Tensor, layout: Layout, layers: Sequence[LayerWeights], settings: LayerSettings, rows: np.ndarray | None
) -> Tensor:
    """Reference implementation in plain Paddle."""
    for number, weights in enumerate(layers, 1):
        x_TD = transformer_layer(x_TD, layout, weights, settings, rows=rows if number == len(layers) else None)
    return x_TD

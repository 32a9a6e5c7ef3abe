"""A stack of Transformer layers for inference.  Legend: T packed tokens, D width."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import paddle
from paddle import Tensor, nn

from ernie.data.batch import Layout
from ernie.errors import UserError
from ernie.kernels import cpu
from ernie.kernels.argument_checks import check_activation, check_attention, check_layout, output_rows
from ernie.kernels.attention import attention
from ernie.kernels.choose import choose
from ernie.kernels.layer import only_rows, transformer_layer
from ernie.kernels.linear import linear
from ernie.kernels.norm import add_norm
from ernie.kernels.types import Adapted, LayerSettings, LayerUpdates, LayerWeights, LowRank


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
        adapted: Sequence[Adapted] = (),
    ) -> Tensor:
        """Return the output of the last layer, (T, D) -> (T, D); with `rows` (ascending), zero but at those tokens.

        The tokens of `adapted`, in ascending order, have updates of the layers' matrices.  Raises UserError if the
        shapes do not fit.
        """
        if not layers:
            raise UserError("layers: expected at least one layer")
        check_activation(settings.activation)
        check_layout(layout, x_TD.shape[0])
        check_attention(layout, x_TD.shape[1], settings.heads, None)
        rows = None if rows is None else output_rows(rows, layout.tokens)
        _check_adapted(adapted, layers, layout.tokens)
        return choose((x_TD,), reference, self._packed)(x_TD, layout, layers, settings, rows, adapted)


def _check_adapted(adapted: Sequence[Adapted], layers: Sequence[LayerWeights], tokens: int) -> None:
    """Raise UserError unless the tokens are ascending ones of the batch, and the updates fit the layers' matrices."""
    done = 0
    for part in adapted:
        if not done <= part.start <= part.stop <= tokens:
            raise UserError(
                f"adapted: expected ascending tokens of {tokens}, found {part.start} to {part.stop} after {done}"
            )
        done = part.stop
        sizes = (len(layers), *layers[0].inner.shape)
        if part.layers.checked_for != sizes:
            _check_updates(part.layers, layers)
            part.layers.checked_for = sizes


def _check_updates(each: LayerUpdates, layers: Sequence[LayerWeights]) -> None:
    """Raise UserError unless updates fit the layers' matrices."""
    if len(each) != len(layers):
        raise UserError(f"adapted: expected updates of {len(layers)} layers, found {len(each)}")
    for weights, updates in zip(layers, each, strict=True):
        for name, update in updates.items():
            if any(factor.dtype != np.float32 or not factor.flags.c_contiguous for factor in update):
                raise UserError(f"adapted: expected contiguous float32 factors of {name}")
            D, E = getattr(weights, name).shape
            if (update.a.shape[0], *update.b.shape) != (D, update.a.shape[1], E):
                raise UserError(
                    f"adapted: expected factors of {name}, ({D}, {E}), found {update.a.shape} and {update.b.shape}"
                )


def reference(
    x_TD: Tensor,
    layout: Layout,
    layers: Sequence[LayerWeights],
    settings: LayerSettings,
    rows: np.ndarray | None,
    adapted: Sequence[Adapted],
) -> Tensor:
    """Reference implementation in plain Paddle."""
    for number, weights in enumerate(layers):
        wanted = rows if number == len(layers) - 1 else None
        if adapted:
            updates = [(part.start, part.stop, part.layers[number]) for part in adapted]
            x_TD = _adapted_layer(x_TD, layout, weights, settings, wanted, updates)
        else:
            x_TD = transformer_layer(x_TD, layout, weights, settings, rows=wanted)
    return x_TD


def _adapted_layer(
    x_TD: Tensor,
    layout: Layout,
    w: LayerWeights,
    s: LayerSettings,
    rows: np.ndarray | None,
    updates: Sequence[tuple[int, int, Mapping[str, LowRank]]],
) -> Tensor:
    """Return the output of a layer whose matrices have updates for some of the tokens."""

    def product(x_TD: Tensor, name: str) -> Tensor:
        parts, done = [], 0
        for start, stop, by_name in updates:
            if name in by_name and start < stop:
                a, b = map(paddle.to_tensor, by_name[name])
                parts += [paddle.zeros([start - done, b.shape[1]]), x_TD[start:stop] @ a @ b]
                done = stop
        y_TE = linear(x_TD, getattr(w, name), getattr(w, f"{name}_bias"))
        return y_TE + paddle.concat([*parts, paddle.zeros([layout.tokens - done, y_TE.shape[1]])]) if parts else y_TE

    mixed_TD = attention(product(x_TD, "q"), product(x_TD, "k"), product(x_TD, "v"), layout, s.heads, 0.0)
    x_TD = add_norm(x_TD, product(mixed_TD, "out"), w.gain1, w.offset1, s.epsilon)
    inner_TF = getattr(nn.functional, s.activation)(product(x_TD, "inner"))
    y_TD = add_norm(x_TD, product(inner_TF, "outer"), w.gain2, w.offset2, s.epsilon)
    return y_TD if rows is None else only_rows(y_TD, rows)

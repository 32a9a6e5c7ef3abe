"""A stack of gated dilated convolutions.  Van den Oord et al., 2016, "WaveNet" (arXiv 1609.03499), sections 2.1 to 2.4.

Legend: N sequences, S samples that come in and R that come out, C channels, H features of the conditioner, K units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import paddle
import paddle.nn.functional as F
from paddle import Tensor

from ernie.errors import UserError
from ernie.kernels import cpu
from ernie.kernels.check import sizes
from ernie.kernels.choose import choose


class GatedLayer(NamedTuple):
    """A layer's weights: `mix` (taps C + H, 2 C), the oldest tap first and the conditioner last, with its bias; `skip`
    (C, K) leads out of the stack, `on` (C, C) with its bias to the next layer, where there is one."""

    mix: Tensor
    mix_bias: Tensor
    skip: Tensor
    on: Tensor | None = None
    on_bias: Tensor | None = None


_NAMES = ("mix_IG", "mix_bias_G", "skip_CK", "on_CC", "on_bias_C")


def gated_stack(
    x_NSC: Tensor, conditioner_NSH: Tensor, layers: Sequence[GatedLayer], dilations: Sequence[int]
) -> Tensor:
    """The sum of what all layers let out, (N, R, K), R being S less `reach` samples: what comes out is the last of it.

    A layer of dilation d sees samples that lie d apart, the last of them its own.

    Raises UserError where the shapes do not fit.
    """
    given = {"x_NSC": x_NSC, "conditioner_NSH": conditioner_NSH}
    for number, layer in enumerate(layers):
        named = zip(_NAMES, layer, strict=True)
        given |= {f"layers[{number}].{name}": weight for name, weight in named if weight is not None}
    size = sizes(**given)
    C, H = size["C"], size["H"]
    if (size["I"] - H) % C or size["G"] != 2 * C:
        raise UserError(f"layers[0].mix has the shape ({size['I']}, {size['G']}): expected (taps * {C} + {H}, {2 * C})")
    S, first = size["S"], reach(taps(layers[0], C, H), dilations)
    if S <= first:
        raise ValueError(f"{S} samples are no more than the {first} that come before the first one that comes out")
    body = choose([*given.values()], reference, cpu.dilated.gated_stack, reference)
    return body(x_NSC, conditioner_NSH, layers, dilations)


def taps(layer: GatedLayer, channels: int, conditioner: int) -> int:
    """How many samples a layer sees at once."""
    return (layer.mix.shape[0] - conditioner) // channels


def reach(taps: int, dilations: Sequence[int]) -> int:
    """How many samples before its own a stack sees."""
    return (taps - 1) * sum(dilations)


def reference(x_NSC: Tensor, conditioner_NSH: Tensor, layers: Sequence[GatedLayer], dilations: Sequence[int]) -> Tensor:
    """What the stack is."""
    S = x_NSC.shape[1]
    seen = taps(layers[0], x_NSC.shape[2], conditioner_NSH.shape[2])
    R = S - reach(seen, dilations)
    total = None
    for layer, dilation in zip(layers, dilations, strict=True):
        left = x_NSC.shape[1] - (seen - 1) * dilation
        parts = [x_NSC[:, tap * dilation : tap * dilation + left] for tap in range(seen)]
        inner = paddle.concat([*parts, conditioner_NSH[:, S - left :]], axis=-1)
        a, b = paddle.chunk(F.linear(inner, layer.mix, layer.mix_bias), 2, axis=-1)
        gated = paddle.tanh(a) * F.sigmoid(b)
        out = F.linear(gated[:, left - R :], layer.skip)
        total = out if total is None else total + out
        if layer.on is not None:
            x_NSC = x_NSC[:, -left:] + F.linear(gated, layer.on, layer.on_bias)
    assert total is not None
    return total

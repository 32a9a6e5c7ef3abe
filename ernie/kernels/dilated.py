"""A stack of gated dilated convolutions.  Van den Oord et al., 2016, "WaveNet" (arXiv 1609.03499), sections 2.1 to 2.4.

The last S rows of a conditioner belong to the S input samples; earlier rows do not matter.

Legend: N sequences, S input samples, R output samples, A >= S rows of a conditioner, C channels, H features of a
conditioner, K skip channels, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import paddle
import paddle.nn.functional as F
from paddle import Tensor

from ernie.errors import UserError
from ernie.kernels import cpu
from ernie.kernels.argument_checks import sizes
from ernie.kernels.choose import choose
from ernie.kernels.types import GatedLayer, WaveNetEnds

_NAMES = ("mix_IG", "mix_bias_G", "skip_CK", "residual_CC", "residual_bias_C")
_END_NAMES = ("first_C", "first_bias_C", "inner_KK", "inner_bias_K", "out_KO", "out_bias_O")


def gated_stack(
    x_NSC: Tensor, conditioner_NAH: Tensor, layers: Sequence[GatedLayer], dilations: Sequence[int]
) -> Tensor:
    """Return the sum of all layers' skip outputs, (N, R, K), for the last R = S - `reach` samples.

    Each output of a layer with dilation d sees samples that are d apart, the last of which is the current one.

    Raises UserError if the shapes do not fit, ValueError if no output sample remains.
    """
    tensors = _checked({"x_NSC": x_NSC, "conditioner_NAH": conditioner_NAH}, layers, dilations)
    impl = choose(tensors, reference, cpu.dilated.gated_stack)
    return impl(x_NSC, conditioner_NAH, layers, dilations)


def wavenet(
    samples_NS: Tensor,
    conditioner_NAH: Tensor,
    ends: WaveNetEnds,
    layers: Sequence[GatedLayer],
    dilations: Sequence[int],
) -> Tensor:
    """Return the outputs (N, R, O) of a WaveNet, the stack between its ends, for the last R = S - `reach` samples.

    Raises UserError if the shapes do not fit, ValueError if no output sample remains.
    """
    named = {f"ends.{name}": tensor for name, tensor in zip(_END_NAMES, ends, strict=True)}
    tensors = _checked(named | {"samples_NS": samples_NS, "conditioner_NAH": conditioner_NAH}, layers, dilations)
    if paddle.is_grad_enabled():
        stack = choose(tensors, reference, cpu.dilated.gated_stack)
        return wavenet_reference(samples_NS, conditioner_NAH, ends, layers, dilations, stack)
    impl = choose(tensors, wavenet_reference, cpu.dilated.wavenet)
    return impl(samples_NS, conditioner_NAH, ends, layers, dilations)


def more(
    samples_NS: Tensor,
    conditioner_NAH: Tensor,
    ends: WaveNetEnds,
    layers: Sequence[GatedLayer],
    dilations: Sequence[int],
    past_NPC: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the outputs (N, R, O) of a WaveNet for samples that follow others, and the past of those that come next.

    The past holds the vectors that each layer sees before its current one, P = `reach` of all layers, the first layer's
    first.  With a past R = S; without one R = S - P.  There are no gradients.

    Raises UserError if the shapes do not fit, ValueError for fewer than P samples without a past.
    """
    named = {f"ends.{name}": tensor for name, tensor in zip(_END_NAMES, ends, strict=True)}
    named |= {"samples_NS": samples_NS, "conditioner_NAH": conditioner_NAH}
    tensors = _checked(named | ({} if past_NPC is None else {"past_NPC": past_NPC}), layers, dilations, least=0)
    impl = choose(tensors, more_reference, cpu.dilated.more)
    return impl(samples_NS, conditioner_NAH, ends, layers, dilations, past_NPC)


def _checked(
    tensors: dict[str, Tensor], layers: Sequence[GatedLayer], dilations: Sequence[int], least: int = 1
) -> list[Tensor]:
    """Return these tensors, whose names end in their axes, and the layers' weights.

    Raises UserError unless the shapes fit, ValueError for samples with fewer than `least` outputs.
    """
    if not layers or len(layers) != len(dilations) or min(dilations) < 1:
        raise UserError(
            f"dilations: {tuple(dilations)}: expected a number of at least 1 for each of {len(layers)} layers"
        )
    for number, layer in enumerate(layers, 1):
        needed = number < len(layers)
        if any((weight is not None) != needed for weight in (layer.residual, layer.residual_bias)):
            raise UserError(
                f"layers[{number - 1}]: all layers but the last, and only they, have a residual and its bias"
            )
    for number, layer in enumerate(layers):
        weights = zip(_NAMES, layer, strict=True)
        tensors |= {f"layers[{number}].{name}": weight for name, weight in weights if weight is not None}
    size = sizes(**tensors)
    C, H = size["C"], size["H"]
    if (size["I"] - H) % C or size["G"] != 2 * C:
        raise UserError(f"layers[0].mix has the shape ({size['I']}, {size['G']}): expected (taps * {C} + {H}, {2 * C})")
    S, first = size["S"], reach(taps(layers[0], C, H), dilations)
    if size["A"] < S:
        raise UserError(f"conditioner_NAH has {size['A']} rows: expected at least {S}, one for each sample")
    if size.get("P", first) != first:
        raise UserError(f"past_NPC has {size['P']} vectors: expected {first}, as many as the layers see")
    if "P" not in size and S < first + least:
        expected = f"more than {first}" if least else f"at least {first}"
        raise ValueError(f"{S} samples: expected {expected}, the number needed before the first output")
    return [*tensors.values()]


def taps(layer: GatedLayer, channels: int, conditioner: int) -> int:
    """Return how many samples a layer sees at once: its kernel size."""
    return (layer.mix.shape[0] - conditioner) // channels


def reach(taps: int, dilations: Sequence[int]) -> int:
    """Return how many samples before the current one a stack sees: its receptive field less one."""
    return (taps - 1) * sum(dilations)


def reference(x_NSC: Tensor, conditioner_NAH: Tensor, layers: Sequence[GatedLayer], dilations: Sequence[int]) -> Tensor:
    """Reference implementation in plain Paddle."""
    A = conditioner_NAH.shape[1]
    kernel_size = taps(layers[0], x_NSC.shape[2], conditioner_NAH.shape[2])
    R = x_NSC.shape[1] - reach(kernel_size, dilations)
    total = None
    for layer, dilation in zip(layers, dilations, strict=True):
        length = x_NSC.shape[1] - (kernel_size - 1) * dilation
        parts = [x_NSC[:, tap * dilation : tap * dilation + length] for tap in range(kernel_size)]
        inner = paddle.concat([*parts, conditioner_NAH[:, A - length :]], axis=-1)
        a, b = paddle.chunk(F.linear(inner, layer.mix, layer.mix_bias), 2, axis=-1)
        gated = paddle.tanh(a) * F.sigmoid(b)
        out = F.linear(gated[:, length - R :], layer.skip)
        total = out if total is None else total + out
        if layer.residual is not None:
            x_NSC = x_NSC[:, -length:] + F.linear(gated, layer.residual, layer.residual_bias)
    assert total is not None
    return total


def wavenet_reference(
    samples_NS: Tensor,
    conditioner_NAH: Tensor,
    ends: WaveNetEnds,
    layers: Sequence[GatedLayer],
    dilations: Sequence[int],
    stack: Callable[[Tensor, Tensor, Sequence[GatedLayer], Sequence[int]], Tensor] = reference,
) -> Tensor:
    """Reference implementation of `wavenet` in plain Paddle, but for another `stack`."""
    x_NSC = samples_NS.unsqueeze(-1) * ends.first + ends.first_bias
    total_NRK = stack(x_NSC, conditioner_NAH, layers, dilations)
    inner_NRK = F.linear(F.relu(total_NRK), ends.inner, ends.inner_bias)
    return F.linear(F.relu(inner_NRK), ends.out, ends.out_bias)


def more_reference(
    samples_NS: Tensor,
    conditioner_NAH: Tensor,
    ends: WaveNetEnds,
    layers: Sequence[GatedLayer],
    dilations: Sequence[int],
    past_NPC: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Reference implementation of `more` in plain Paddle."""
    kernel_size, A = taps(layers[0], ends.first.shape[0], conditioner_NAH.shape[2]), conditioner_NAH.shape[1]
    counts = [reach(kernel_size, [dilation]) for dilation in dilations]
    pasts = [None] * len(counts) if past_NPC is None else paddle.split(past_NPC, counts, axis=1)
    R = samples_NS.shape[1] - (sum(counts) if past_NPC is None else 0)
    x_NSC, after, total = samples_NS.unsqueeze(-1) * ends.first + ends.first_bias, [], paddle.zeros([])
    for layer, dilation, count, past in zip(layers, dilations, counts, pasts, strict=True):
        x_NSC = x_NSC if past is None else paddle.concat([past, x_NSC], axis=1)
        length = x_NSC.shape[1] - count
        after.append(x_NSC[:, length:])
        parts = [x_NSC[:, tap * dilation : tap * dilation + length] for tap in range(kernel_size)]
        inner = paddle.concat([*parts, conditioner_NAH[:, A - length :]], axis=-1)
        a, b = paddle.chunk(F.linear(inner, layer.mix, layer.mix_bias), 2, axis=-1)
        gated = paddle.tanh(a) * F.sigmoid(b)
        total = total + F.linear(gated[:, length - R :], layer.skip)
        if layer.residual is not None:
            x_NSC = x_NSC[:, count:] + F.linear(gated, layer.residual, layer.residual_bias)
    inner_NRK = F.linear(F.relu(total), ends.inner, ends.inner_bias)
    return F.linear(F.relu(inner_NRK), ends.out, ends.out_bias), paddle.concat(after, axis=1)

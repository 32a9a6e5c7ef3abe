"""CPU implementation of ernie.kernels.dilated.

A few rows at a time go through a whole layer.  Nothing is shifted, padded or concatenated.

Legend: N sequences, S input samples, R output samples, A >= S rows of a conditioner, C channels, H features of a
conditioner, K skip channels, O outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import paddle
from paddle import Tensor
from paddle.autograd import PyLayer

from ernie.kernels.cpu.call import byref, column_sum, loaded
from ernie.kernels.cpu.library import DilatedLayer, WaveNet
from ernie.kernels.cpu.pool import empty
from ernie.kernels.types import GatedLayer, WaveNetEnds


def gated_stack(
    x_NSC: Tensor, conditioner_NAH: Tensor, layers: Sequence[GatedLayer], dilations: Sequence[int]
) -> Tensor:
    """As ernie.kernels.dilated.reference."""
    return _Stack.apply(x_NSC, conditioner_NAH, *_flat(layers), tuple(dilations))


def wavenet(
    samples: Tensor,
    conditioner: Tensor,
    ends: WaveNetEnds,
    layers: Sequence[GatedLayer],
    dilations: Sequence[int],
) -> Tensor:
    """As ernie.kernels.dilated.wavenet, without gradients."""
    network, _, reach = _network(conditioner, ends, layers, dilations)
    N, S = samples.shape
    outputs = empty([N, S - reach, network.outputs])
    _run(network, samples, conditioner, None, outputs, None)
    return outputs


def more(
    samples: Tensor,
    conditioner: Tensor,
    ends: WaveNetEnds,
    layers: Sequence[GatedLayer],
    dilations: Sequence[int],
    past: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """As ernie.kernels.dilated.more."""
    network, C, reach = _network(conditioner, ends, layers, dilations)
    N, S = samples.shape
    outputs, after = empty([N, S if past is not None else S - reach, network.outputs]), empty([N, reach, C])
    _run(network, samples, conditioner, past, outputs, after)
    return outputs, after


def _network(
    conditioner: Tensor, ends: WaveNetEnds, layers: Sequence[GatedLayer], dilations: Sequence[int]
) -> tuple[WaveNet, int, int]:
    """Return a network for the library, its channels, and how many samples it sees before the current one."""
    H = conditioner.shape[2]
    structures = [_structure(layer, H, dilation) for layer, dilation in zip(layers, dilations, strict=True)]
    array = (DilatedLayer * len(structures))(*structures)
    network = WaveNet(len(structures), array, ends.out.shape[1], *(weight.data_ptr() for weight in ends))
    return network, structures[0].channels, sum(map(_shift, structures))


def _run(
    network: WaveNet, samples: Tensor, conditioner: Tensor, past: Tensor | None, outputs: Tensor, after: Tensor | None
) -> None:
    given = [None if tensor is None else tensor.data_ptr() for tensor in (samples, conditioner, past, outputs, after)]
    loaded().call("wavenet", byref(network), *samples.shape, conditioner.shape[1], *given)


def _structure(layer: Sequence[Tensor | None], features: int, dilation: int) -> DilatedLayer:
    """Return a layer's weights and sizes for the library."""
    mix, _, skip, *_ = layer
    assert mix is not None and skip is not None
    C, K = skip.shape
    sizes = (C, (mix.shape[0] - features) // C, features, K, dilation)
    return DilatedLayer(*sizes, *(None if weight is None else weight.data_ptr() for weight in layer))


def _shift(layer: DilatedLayer) -> int:
    """Return by how many rows fewer come out of a layer than go in."""
    return (layer.taps - 1) * layer.dilation


class _Rows(NamedTuple):
    """The rows of each sequence in a tensor (N, S, width), from `first` on."""

    tensor: Tensor
    first: int = 0

    def address(self, n: int) -> int:
        """Return the address of the first row of sequence n."""
        _, S, width = self.tensor.shape
        return self.tensor.data_ptr() + 4 * width * (n * S + self.first)

    @property
    def width(self) -> int:
        """The number of elements of a row."""
        return self.tensor.shape[2]


class _Block(NamedTuple):
    """A block of `rows` rows of a matrix, from `first` on."""

    matrix: Tensor
    first: int
    rows: int

    @property
    def address(self) -> int:
        """The address of the block."""
        return self.matrix.data_ptr() + 4 * self.matrix.shape[1] * self.first


def _add_input_grad(grad: _Rows, block: _Block, x_grad: _Rows, count: int) -> None:
    """Add the gradient of the input: `count` rows of each sequence times the transposed block."""
    units = block.matrix.shape[1]
    for n in range(grad.tensor.shape[0]):
        loaded().call(
            *("product", 0, count, block.rows, units),
            *(grad.address(n), grad.width, 0, block.address, units, 1),
            *(None, x_grad.address(n), 0, x_grad.width, 1, 0),
        )


def _add_weight_grad(x: _Rows, grad: _Rows, block: _Block, count: int) -> None:
    """Add the gradient of a block of a weight, summed over the sequences."""
    units = block.matrix.shape[1]
    for n in range(x.tensor.shape[0]):
        loaded().call(
            *("product", 0, block.rows, units, count),
            *(x.address(n), x.width, 1, grad.address(n), grad.width, 0),
            *(None, block.address, 0, units, 1, 0),
        )


class _Stack(PyLayer):
    @staticmethod
    def forward(ctx, x, conditioner, *rest):  # type: ignore[no-untyped-def]
        *weights, dilations = rest
        x, conditioner = x.contiguous(), conditioner.contiguous()
        (N, S, C), (_, A, H), K = x.shape, conditioner.shape, weights[2].shape[1]
        layers = [_structure(layer, H, dilation) for layer, dilation in zip(_layers(weights), dilations, strict=True)]
        R = S - sum(map(_shift, layers))
        total, kept = empty([N, R, K]), []
        for number, layer in enumerate(layers):
            S = x.shape[1]
            inner, after = empty([N, S - _shift(layer), 2 * C]), None
            if layer.residual:
                after = empty([N, S - _shift(layer), C])
            loaded().call(
                *("gated_forward", byref(layer), N, S, A, R, x.data_ptr(), conditioner.data_ptr(), int(number > 0)),
                *(inner.data_ptr(), None if after is None else after.data_ptr(), total.data_ptr()),
            )
            kept += [x, inner]
            x = after
        ctx.save_for_backward(conditioner, *weights, *kept)
        ctx.dilations = dilations
        ctx.frozen = [tensor.stop_gradient for tensor in (kept[0], conditioner, *weights)]
        return total

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        conditioner, *rest = ctx.saved_tensor()
        count = len(rest) - 2 * len(ctx.dilations)
        weights, kept, grad = rest[:count], rest[count:], grad.contiguous()
        grads = [None if frozen else paddle.zeros_like(w) for w, frozen in zip(weights, ctx.frozen[2:], strict=True)]
        (N, A, H), R = conditioner.shape, grad.shape[1]
        d_conditioner = None if ctx.frozen[1] else paddle.zeros_like(conditioner)
        d_output = None
        for number in reversed(range(len(ctx.dilations))):
            mix = weights[5 * number]
            d_mix, d_mix_bias, d_skip, d_residual, d_residual_bias = _layers(grads)[number]
            x, inner = kept[2 * number : 2 * number + 2]
            layer = _structure(_layers(weights)[number], H, ctx.dilations[number])
            length, C, taps = inner.shape[1], x.shape[2], layer.taps
            if d_skip is not None or d_residual is not None:
                gated = _gated(inner)
            if d_skip is not None:
                _add_weight_grad(_Rows(gated, length - R), _Rows(grad), _Block(d_skip, 0, C), R)
            if d_output is not None:  # not the last layer, which has no residual
                if d_residual is not None:
                    _add_weight_grad(_Rows(gated), _Rows(d_output), _Block(d_residual, 0, C), length)
                if d_residual_bias is not None:
                    paddle.assign(column_sum(d_output.reshape([-1, C])), d_residual_bias)
            d_inner, d_x = empty(inner.shape), None if number == 0 and ctx.frozen[0] else empty(x.shape)
            loaded().call(
                *("gated_backward", byref(layer), N, x.shape[1], R, inner.data_ptr(), grad.data_ptr()),
                *(None if d_output is None else d_output.data_ptr(), d_inner.data_ptr()),
                None if d_x is None else d_x.data_ptr(),
            )
            if d_mix is not None:
                for tap in range(taps):
                    first = tap * ctx.dilations[number]
                    _add_weight_grad(_Rows(x, first), _Rows(d_inner), _Block(d_mix, tap * C, C), length)
                _add_weight_grad(_Rows(conditioner, A - length), _Rows(d_inner), _Block(d_mix, taps * C, H), length)
            if d_mix_bias is not None:
                paddle.assign(column_sum(d_inner.reshape([-1, 2 * C])), d_mix_bias)
            if d_conditioner is not None:
                _add_input_grad(_Rows(d_inner), _Block(mix, taps * C, H), _Rows(d_conditioner, A - length), length)
            d_output = d_x
        return (d_output, d_conditioner, *grads)


def _flat(layers: Sequence[GatedLayer]) -> list[Tensor]:
    return [weight for layer in layers for weight in layer if weight is not None]


def _layers(flat: Sequence[Tensor | None]) -> list[tuple[Tensor | None, ...]]:
    """Group what `_flat` returned by layer; the last layer has no residual projection."""
    padded = [*flat, None, None]
    return [tuple(padded[i : i + 5]) for i in range(0, len(padded), 5)]


def _gated(inner: Tensor) -> Tensor:
    N, length, width = inner.shape
    gated = empty([N, length, width // 2])
    loaded().call("gate", inner.data_ptr(), N * length, width // 2, gated.data_ptr())
    return gated

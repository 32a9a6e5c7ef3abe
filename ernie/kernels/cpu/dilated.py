"""CPU implementation of ernie.kernels.dilated.

Every matrix product reads and writes its rows in place: nothing is shifted, padded or concatenated.

Legend: N sequences, S input samples, R output samples, A >= S rows of a conditioner, C channels, H features of a
conditioner, K skip channels, O outputs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import paddle
from paddle import Tensor
from paddle.autograd import PyLayer

from ernie.kernels.cpu.call import byref, column_sum, loaded
from ernie.kernels.cpu.library import WaveNet
from ernie.kernels.cpu.pool import empty

if TYPE_CHECKING:
    from ernie.kernels.dilated import Ends, GatedLayer


def gated_stack(
    x_NSC: Tensor, conditioner_NAH: Tensor, layers: Sequence[GatedLayer], dilations: Sequence[int]
) -> Tensor:
    """As ernie.kernels.dilated.reference."""
    return _Stack.apply(x_NSC, conditioner_NAH, *_flat(layers), tuple(dilations))


def wavenet(
    samples_NS: Tensor, conditioner_NAH: Tensor, ends: Ends, layers: Sequence[GatedLayer], dilations: Sequence[int]
) -> Tensor:
    """As ernie.kernels.dilated.wavenet, without gradients: a few rows at a time go through all of a layer."""
    (N, S), (_, A, H), (K, outs) = samples_NS.shape, conditioner_NAH.shape, ends.out.shape
    C = ends.first.shape[0]
    taps = (layers[0].mix.shape[0] - H) // C
    steps = np.array(dilations, np.int64)
    weights = [None if weight is None else weight.data_ptr() for layer in layers for weight in layer]
    addresses = (ctypes.c_void_p * len(weights))(*weights)
    sizes, pointers = (len(layers), C, taps, H, K, outs), (steps.ctypes.data, ctypes.addressof(addresses))
    network = WaveNet(*sizes, *pointers, *(weight.data_ptr() for weight in ends))
    outputs = empty([N, S - (taps - 1) * int(steps.sum()), outs])
    for n in range(N):
        rows = (_Rows(samples_NS.unsqueeze(-1)), _Rows(conditioner_NAH, A - S), _Rows(outputs))
        loaded().call("wavenet", byref(network), S, *(of_tensor.address(n) for of_tensor in rows))
    return outputs


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


def _multiply(x: _Rows, block: _Block, y: _Rows, count: int, bias: Tensor | None = None, *, add: bool) -> None:
    """Multiply `count` rows of each sequence by a block of a matrix (K, N), into or (`add`) onto other rows."""
    units = block.matrix.shape[1]
    for n in range(x.tensor.shape[0]):
        loaded().call(
            *("product", 0, count, units, block.rows),
            *(x.address(n), x.width, 0, block.address, units, 0),
            *(None if bias is None else bias.data_ptr(), y.address(n), 0, y.width, int(add)),
        )


def _add_input_grad(grad: _Rows, block: _Block, x_grad: _Rows, count: int) -> None:
    """Add the gradient of the input: `count` rows of each sequence times the transposed block."""
    units = block.matrix.shape[1]
    for n in range(grad.tensor.shape[0]):
        loaded().call(
            *("product", 0, count, block.rows, units),
            *(grad.address(n), grad.width, 0, block.address, units, 1),
            *(None, x_grad.address(n), 0, x_grad.width, 1),
        )


def _add_weight_grad(x: _Rows, grad: _Rows, block: _Block, count: int) -> None:
    """Add the gradient of a block of a weight, summed over the sequences."""
    units = block.matrix.shape[1]
    for n in range(x.tensor.shape[0]):
        loaded().call(
            *("product", 0, block.rows, units, count),
            *(x.address(n), x.width, 1, grad.address(n), grad.width, 0),
            *(None, block.address, 0, units, 1),
        )


class _Stack(PyLayer):
    @staticmethod
    def forward(ctx, x, conditioner, *rest):  # type: ignore[no-untyped-def]
        *weights, dilations = rest
        x, conditioner = x.contiguous(), conditioner.contiguous()
        (N, S, C), (_, A, H), K = x.shape, conditioner.shape, weights[2].shape[1]
        taps = (weights[0].shape[0] - H) // C
        R = S - (taps - 1) * sum(dilations)
        total, kept = paddle.zeros([N, R, K], x.dtype), []
        for (mix, mix_bias, skip, residual, residual_bias), dilation in zip(_layers(weights), dilations, strict=True):
            length = x.shape[1] - (taps - 1) * dilation
            inner = empty([N, length, 2 * C])
            for tap in range(taps):
                block = _Block(mix, tap * C, C)
                _multiply(_Rows(x, tap * dilation), block, _Rows(inner), length, None if tap else mix_bias, add=tap > 0)
            _multiply(_Rows(conditioner, A - length), _Block(mix, taps * C, H), _Rows(inner), length, add=True)
            gated = _gated(inner)
            _multiply(_Rows(gated, length - R), _Block(skip, 0, C), _Rows(total), R, add=True)
            kept += [x, inner]
            if residual is not None:
                x = paddle.assign(x[:, x.shape[1] - length :])
                _multiply(_Rows(gated), _Block(residual, 0, C), _Rows(x), length, residual_bias, add=True)
        ctx.save_for_backward(conditioner, *weights, *kept)
        ctx.dilations, ctx.taps = dilations, taps
        ctx.frozen = [tensor.stop_gradient for tensor in (kept[0], conditioner, *weights)]
        return total

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        conditioner, *rest = ctx.saved_tensor()
        count = len(rest) - 2 * len(ctx.dilations)
        weights, kept, taps, grad = rest[:count], rest[count:], ctx.taps, grad.contiguous()
        grads = [None if frozen else paddle.zeros_like(w) for w, frozen in zip(weights, ctx.frozen[2:], strict=True)]
        (N, A, H), R = conditioner.shape, grad.shape[1]
        d_conditioner = None if ctx.frozen[1] else paddle.zeros_like(conditioner)
        d_output = None
        for number in reversed(range(len(ctx.dilations))):
            dilation = ctx.dilations[number]
            mix, _, skip, residual, _ = _layers(weights)[number]
            d_mix, d_mix_bias, d_skip, d_residual, d_residual_bias = _layers(grads)[number]
            x, inner = kept[2 * number : 2 * number + 2]
            length, C = inner.shape[1], x.shape[2]
            gated = _gated(inner)
            d_gated = paddle.zeros_like(gated)
            _add_input_grad(_Rows(grad), _Block(skip, 0, C), _Rows(d_gated, length - R), R)
            if d_skip is not None:
                _add_weight_grad(_Rows(gated, length - R), _Rows(grad), _Block(d_skip, 0, C), R)
            if d_output is not None:
                _add_input_grad(_Rows(d_output), _Block(residual, 0, C), _Rows(d_gated), length)
                if d_residual is not None:
                    _add_weight_grad(_Rows(gated), _Rows(d_output), _Block(d_residual, 0, C), length)
                    paddle.assign(column_sum(d_output.reshape([-1, C])), d_residual_bias)
            d_inner = empty(inner.shape)
            loaded().call("gate_backward", inner.data_ptr(), d_gated.data_ptr(), N * length, C, d_inner.data_ptr())
            if d_mix is not None:
                for tap in range(taps):
                    _add_weight_grad(_Rows(x, tap * dilation), _Rows(d_inner), _Block(d_mix, tap * C, C), length)
                _add_weight_grad(_Rows(conditioner, A - length), _Rows(d_inner), _Block(d_mix, taps * C, H), length)
                paddle.assign(column_sum(d_inner.reshape([-1, 2 * C])), d_mix_bias)
            if d_conditioner is not None:
                _add_input_grad(_Rows(d_inner), _Block(mix, taps * C, H), _Rows(d_conditioner, A - length), length)
            if number == 0 and ctx.frozen[0]:
                break
            padding = paddle.zeros([N, x.shape[1] - length, C], x.dtype)
            d_x = paddle.zeros_like(x) if d_output is None else paddle.concat([padding, d_output], axis=1)
            for tap in range(taps):
                _add_input_grad(_Rows(d_inner), _Block(mix, tap * C, C), _Rows(d_x, tap * dilation), length)
            d_output = d_x
        return (None if ctx.frozen[0] else d_output, d_conditioner, *grads)


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

"""CPU body of ernie.kernels.dilated.

Every product reads and writes its rows where they lie: nothing is shifted, padded or joined.

Legend: N sequences, S samples that come in and R that come out, C channels, H features of the conditioner, K units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import paddle
from paddle import Tensor
from paddle.autograd import PyLayer

from ernie.kernels.cpu.call import column_sum, loaded
from ernie.kernels.cpu.room import empty

if TYPE_CHECKING:
    from ernie.kernels.dilated import GatedLayer


def gated_stack(
    x_NSC: Tensor, conditioner_NSH: Tensor, layers: Sequence[GatedLayer], dilations: Sequence[int]
) -> Tensor:
    """As ernie.kernels.dilated.reference."""
    return _Stack.apply(x_NSC, conditioner_NSH, *_flat(layers), tuple(dilations))


class _Rows(NamedTuple):
    """The rows from `first` on of each sequence in a tensor (N, S, width)."""

    tensor: Tensor
    first: int = 0

    def address(self, n: int) -> int:
        """Where the first row of sequence n lies."""
        _, S, width = self.tensor.shape
        return self.tensor.data_ptr() + 4 * width * (n * S + self.first)

    @property
    def width(self) -> int:
        """How many numbers a row has."""
        return self.tensor.shape[2]


class _Block(NamedTuple):
    """Some rows of a matrix."""

    matrix: Tensor
    first: int
    rows: int

    @property
    def address(self) -> int:
        """Where they lie."""
        return self.matrix.data_ptr() + 4 * self.matrix.shape[1] * self.first


def _through(given: _Rows, block: _Block, to: _Rows, count: int, bias: Tensor | None = None, *, add: bool) -> None:
    """Rows of each sequence times a block of a matrix (K, N), into or onto other rows."""
    units = block.matrix.shape[1]
    for n in range(given.tensor.shape[0]):
        loaded().call(
            *("product", 0, count, units, block.rows),
            *(given.address(n), given.width, 0, block.address, units, 0),
            *(None if bias is None else bias.data_ptr(), to.address(n), 0, to.width, int(add)),
        )


def _back(given: _Rows, block: _Block, to: _Rows, count: int) -> None:
    """Rows of each sequence times a block transposed, onto other rows: a gradient on its way back."""
    units = block.matrix.shape[1]
    for n in range(given.tensor.shape[0]):
        loaded().call(
            *("product", 0, count, block.rows, units),
            *(given.address(n), given.width, 0, block.address, units, 1),
            *(None, to.address(n), 0, to.width, 1),
        )


def _learnt(given: _Rows, grad: _Rows, block: _Block, count: int) -> None:
    """The gradient of a block, summed over the sequences, onto what is there."""
    units = block.matrix.shape[1]
    for n in range(given.tensor.shape[0]):
        loaded().call(
            *("product", 0, block.rows, units, count),
            *(given.address(n), given.width, 1, grad.address(n), grad.width, 0),
            *(None, block.address, 0, units, 1),
        )


class _Stack(PyLayer):
    @staticmethod
    def forward(ctx, x, conditioner, *rest):  # type: ignore[no-untyped-def]
        *weights, dilations = rest
        x, conditioner = x.contiguous(), conditioner.contiguous()
        (N, S, C), H, K = x.shape, conditioner.shape[2], weights[2].shape[1]
        taps = (weights[0].shape[0] - H) // C
        R = S - (taps - 1) * sum(dilations)
        total, kept = paddle.zeros([N, R, K], x.dtype), []
        for (mix, mix_bias, skip, on, on_bias), dilation in zip(_layers(weights), dilations, strict=True):
            left = x.shape[1] - (taps - 1) * dilation
            inner = empty([N, left, 2 * C])
            for tap in range(taps):
                block = _Block(mix, tap * C, C)
                _through(_Rows(x, tap * dilation), block, _Rows(inner), left, None if tap else mix_bias, add=tap > 0)
            _through(_Rows(conditioner, S - left), _Block(mix, taps * C, H), _Rows(inner), left, add=True)
            gated = _gated(inner)
            _through(_Rows(gated, left - R), _Block(skip, 0, C), _Rows(total), R, add=True)
            kept += [x, inner]
            if on is not None:
                x = paddle.assign(x[:, x.shape[1] - left :])
                _through(_Rows(gated), _Block(on, 0, C), _Rows(x), left, on_bias, add=True)
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
        (N, S, H), R = conditioner.shape, grad.shape[1]
        d_conditioner = None if ctx.frozen[1] else paddle.zeros_like(conditioner)
        d_next = None
        for number in reversed(range(len(ctx.dilations))):
            dilation = ctx.dilations[number]
            mix, _, skip, on, _ = _layers(weights)[number]
            d_mix, d_mix_bias, d_skip, d_on, d_on_bias = _layers(grads)[number]
            x, inner = kept[2 * number : 2 * number + 2]
            left, C = inner.shape[1], x.shape[2]
            gated = _gated(inner)
            d_gated = paddle.zeros_like(gated)
            _back(_Rows(grad), _Block(skip, 0, C), _Rows(d_gated, left - R), R)
            if d_skip is not None:
                _learnt(_Rows(gated, left - R), _Rows(grad), _Block(d_skip, 0, C), R)
            if d_next is not None:
                _back(_Rows(d_next), _Block(on, 0, C), _Rows(d_gated), left)
                if d_on is not None:
                    _learnt(_Rows(gated), _Rows(d_next), _Block(d_on, 0, C), left)
                    paddle.assign(column_sum(d_next.reshape([-1, C])), d_on_bias)
            d_inner = empty(inner.shape)
            loaded().call("gate_backward", inner.data_ptr(), d_gated.data_ptr(), N * left, C, d_inner.data_ptr())
            if d_mix is not None:
                for tap in range(taps):
                    _learnt(_Rows(x, tap * dilation), _Rows(d_inner), _Block(d_mix, tap * C, C), left)
                _learnt(_Rows(conditioner, S - left), _Rows(d_inner), _Block(d_mix, taps * C, H), left)
                paddle.assign(column_sum(d_inner.reshape([-1, 2 * C])), d_mix_bias)
            if d_conditioner is not None:
                _back(_Rows(d_inner), _Block(mix, taps * C, H), _Rows(d_conditioner, S - left), left)
            if number == 0 and ctx.frozen[0]:
                break
            before = paddle.zeros([N, x.shape[1] - left, C], x.dtype)
            d_x = paddle.zeros_like(x) if d_next is None else paddle.concat([before, d_next], axis=1)
            for tap in range(taps):
                _back(_Rows(d_inner), _Block(mix, tap * C, C), _Rows(d_x, tap * dilation), left)
            d_next = d_x
        return (None if ctx.frozen[0] else d_next, d_conditioner, *grads)


def _flat(layers: Sequence[GatedLayer]) -> list[Tensor]:
    return [weight for layer in layers for weight in layer if weight is not None]


def _layers(flat: Sequence[Tensor | None]) -> list[tuple[Tensor | None, ...]]:
    """What belongs to each layer of what `_flat` gave; the last one leads nowhere on."""
    whole = [*flat, None, None]
    return [tuple(whole[i : i + 5]) for i in range(0, len(whole), 5)]


def _gated(inner: Tensor) -> Tensor:
    N, left, width = inner.shape
    gated = empty([N, left, width // 2])
    loaded().call("gate", inner.data_ptr(), N * left, width // 2, gated.data_ptr())
    return gated

"""Convolutions between the layers of a speech encoder.

Gulati et al., 2020, "Conformer" (arXiv 2005.08100), section 2.2.  Legend: T packed vectors, S packed vectors that these
see, K vectors of a kernel, D width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor, nn

from ernie.data.batch import Layout
from ernie.kernels.layer_norm import layer_norm
from ernie.kernels.linear import linear
from ernie.kernels.mask import Mask
from ernie.model.cache import ExtendedCache, KeyValueCache
from ernie.model.config import EncoderConfig
from ernie.model.encoder import Encoder


class Convolution(nn.Layer):
    """A gated, depthwise convolution over `kernel` vectors, and the residual around it, (T, D) -> (T, D).

    It has a LayerNorm where the paper has batch normalization, so that no vector depends on what is beside it.
    """

    def __init__(self, config: EncoderConfig, kernel: int):
        super().__init__()
        D, bound = config.hidden_size, 1 / math.sqrt(kernel)
        self.norm = nn.LayerNorm(D, epsilon=config.layer_norm_epsilon)
        self.gated = nn.Linear(D, 2 * D)
        self.depth = self.create_parameter([kernel, D], default_initializer=nn.initializer.Uniform(-bound, bound))
        self.inner_norm = nn.LayerNorm(D, epsilon=config.layer_norm_epsilon)
        self.out = nn.Linear(D, D)
        self.dropout, self._epsilon = config.dropout, config.layer_norm_epsilon

    @property
    def kernel(self) -> int:
        """The number of vectors that each vector is made of."""
        return int(self.depth.shape[0])

    def inputs(self, x_TD: Tensor) -> Tensor:
        """Return what is convolved of each vector, (T, D)."""
        x_TD = layer_norm(x_TD, self.norm.weight, self.norm.bias, self._epsilon)
        return F.glu(linear(x_TD, self.gated.weight, self.gated.bias))

    def outputs(self, x_TD: Tensor, inputs_SD: Tensor, rows_TK: np.ndarray) -> Tensor:
        """Return the vectors after the convolution of `inputs_SD`, of which each sees `rows_TK`; S stands for none."""
        padded = paddle.concat([inputs_SD, paddle.zeros([1, inputs_SD.shape[1]], inputs_SD.dtype)])
        total_TD = paddle.zeros_like(x_TD)
        for step in range(self.kernel):
            total_TD = total_TD + paddle.gather(padded, paddle.to_tensor(rows_TK[:, step])) * self.depth[step]
        total_TD = F.silu(layer_norm(total_TD, self.inner_norm.weight, self.inner_norm.bias, self._epsilon))
        out_TD = linear(total_TD, self.out.weight, self.out.bias)
        return x_TD + (F.dropout(out_TD, self.dropout) if self.training else out_TD)


class ConvolvedEncoder:
    """An encoder with a convolution after each layer, which reaches as far as the kernel and as attention does.

    It computes with the layers of both and has none of its own.
    """

    def __init__(self, encoder: Encoder, convolutions: Sequence[Convolution]):
        self._encoder, self._convolutions = encoder, convolutions

    def __call__(self, x_TD: Tensor, layout: Layout, mask: Mask | None = None) -> Tensor:
        """Encode whole sounds, or all of their chunks at once, as in training."""
        begin, end = np.repeat(layout.starts, layout.lengths), np.repeat(layout.offsets[1:], layout.lengths)
        if mask is not None:
            begin, end = np.maximum(begin, begin + mask.first), np.minimum(end, begin + mask.last)
        rows_TK = self._rows(np.arange(layout.tokens), begin, end, layout.tokens)

        def convolve(layer: int, x_TD: Tensor) -> Tensor:
            convolution = self._convolutions[layer]
            return convolution.outputs(x_TD, convolution.inputs(x_TD), rows_TK)

        return self._encoder(x_TD, layout, mask=mask, between=convolve)

    def forward_chunks(
        self, x_TD: Tensor, layout: Layout, cache: KeyValueCache, chunk: int, before: int
    ) -> tuple[Tensor, KeyValueCache]:
        """Encode the next chunks, as `Encoder.forward_chunks` does; the cache holds inputs of convolutions, too."""

        def convolve(layer: int, x_TD: Tensor, extended: ExtendedCache) -> Tensor:
            convolution, queries, keys = self._convolutions[layer], extended.queries, extended.layout
            inputs_TD = convolution.inputs(x_TD)
            extended.append((inputs_TD, inputs_TD))
            end = np.repeat(keys.offsets[1:], queries.lengths)
            center = end - np.repeat(queries.lengths, queries.lengths) + queries.positions
            rows_TK = self._rows(center, np.repeat(keys.starts, queries.lengths), end, keys.tokens)
            return convolution.outputs(x_TD, extended.values(), rows_TK)

        return self._encoder.forward_chunks(x_TD, layout, cache, chunk, before, between=convolve)

    def _rows(self, center_T: np.ndarray, begin_T: np.ndarray, end_T: np.ndarray, none: int) -> np.ndarray:
        """Return the rows around each center, (T, K): `none` for those before `begin_T`, or from `end_T` on."""
        reach = self._convolutions[0].kernel // 2
        rows_TK = center_T[:, None] + np.arange(-reach, reach + 1)
        return np.where((rows_TK >= begin_T[:, None]) & (rows_TK < end_T[:, None]), rows_TK, none)

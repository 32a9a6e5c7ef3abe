"""The decoder: what is written so far and what was read of a source, and out come vectors of what is to follow.

Legend: T packed tokens that are written, S packed vectors of the sources, N sequences, D width.
"""

from __future__ import annotations

from typing import NamedTuple

from paddle import Tensor, nn

from ernie.data.batch import Layout
from ernie.kernels.attention import attention
from ernie.kernels.linear import linear
from ernie.kernels.mask import Mask
from ernie.kernels.norm import add_norm
from ernie.model.config import EncoderConfig
from ernie.model.memory import Grown, Memory, Pairs


class Source(NamedTuple):
    """What tokens that are written may look at.

    `memory` are the sources, as `Decoder.read` makes them.  `queries` says which tokens look at which source: the n-th
    sequence of its tokens at the n-th source.  `mask` says how much of it each token sees, all if left out.
    """

    memory: Memory
    queries: Layout
    mask: Mask | None = None


class Decoder(nn.Layer):
    """A stack of post-norm Transformer layers that look at what is written and at a source, (T, D) -> (T, D).

    Vaswani et al. (2017, arXiv 1706.03762), section 3.1; the shape is an encoder's.
    """

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.layers = nn.LayerList([DecoderLayer(config) for _ in range(config.layers)])

    def read(self, source_SD: Tensor) -> Pairs:
        """The keys and values of each layer for an encoder's vectors."""
        return tuple(layer.read(source_SD) for layer in self.layers)

    def forward(self, x_TD: Tensor, layout: Layout, source: Source, written: Memory | None = None) -> Tensor:
        """Decode all tokens at once, as in training: each sees those before it, and its part of the source."""
        return self.go_on(x_TD, layout, source, written or Memory.empty(layout.sequences))[0]

    def go_on(
        self, x_TD: Tensor, layout: Layout, source: Source, written: Memory, window: int | None = None
    ) -> tuple[Tensor, Memory]:
        """Decode tokens that follow those `written`, which they join in the memory that is returned.

        With a `window` each sees so many tokens of what is written at most, itself the last of them.
        """
        grown = written.places(layout, window=window)
        layers = []
        for number, layer in enumerate(self.layers):
            x_TD, pair = layer(x_TD, layout, source, grown, number)
            layers.append(pair)
        return x_TD, Memory(grown.layout, tuple(layers))


class DecoderLayer(nn.Layer):
    """Attention to what is written, attention to the source, and a feed-forward network.

    Each is followed by dropout, residual and LayerNorm.
    """

    def __init__(self, config: EncoderConfig):
        super().__init__()
        D, F, epsilon = config.hidden_size, config.intermediate_size, config.layer_norm_epsilon
        self.q, self.k, self.v = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)
        self.attention_out, self.attention_norm = nn.Linear(D, D), nn.LayerNorm(D, epsilon=epsilon)
        self.source_q, self.source_k, self.source_v = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)
        self.source_out, self.source_norm = nn.Linear(D, D), nn.LayerNorm(D, epsilon=epsilon)
        self.inner, self.outer = nn.Linear(D, F), nn.Linear(F, D)
        self.output_norm = nn.LayerNorm(D, epsilon=epsilon)
        self.dropout, self.attention_dropout = config.dropout, config.attention_dropout
        self._heads, self._activation, self._epsilon = config.heads, config.activation, epsilon

    def read(self, source_SD: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the source."""
        return _apply(self.source_k, source_SD), _apply(self.source_v, source_SD)

    def forward(
        self, x_TD: Tensor, layout: Layout, source: Source, grown: Grown, number: int
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The output, and the keys and values of all that is written now."""
        heads, dropout = self._heads, self.attention_dropout if self.training else 0.0
        pair = grown(number, (_apply(self.k, x_TD), _apply(self.v, x_TD)))
        mixed_TD = attention(_apply(self.q, x_TD), *pair, layout, heads, dropout, keys=grown.layout, mask=grown.mask)
        x_TD = self._add(self.attention_norm, x_TD, _apply(self.attention_out, mixed_TD))
        keys, values = source.memory.layers[number]
        q_TD, lies = _apply(self.source_q, x_TD), source.memory.layout
        mixed_TD = attention(q_TD, keys, values, source.queries, heads, dropout, keys=lies, mask=source.mask)
        x_TD = self._add(self.source_norm, x_TD, _apply(self.source_out, mixed_TD))
        inner_TF = linear(x_TD, self.inner.weight, self.inner.bias, self._activation)
        return self._add(self.output_norm, x_TD, _apply(self.outer, inner_TF)), pair

    def _add(self, norm: nn.LayerNorm, residual_TD: Tensor, x_TD: Tensor) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        return add_norm(residual_TD, x_TD, norm.weight, norm.bias, self._epsilon, dropout)


def _apply(layer: nn.Linear, x_TD: Tensor) -> Tensor:
    return linear(x_TD, layer.weight, layer.bias)

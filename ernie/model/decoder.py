"""The Transformer decoder: from the target prefix and the encoded source to hidden states that predict the next token.

Legend: T packed target tokens, S packed source vectors, N sequences, D width, F inner width.
"""

from __future__ import annotations

from typing import NamedTuple

from paddle import Tensor, nn

from ernie.data.batch import Layout
from ernie.kernels.linear import linear
from ernie.kernels.mask import Mask
from ernie.kernels.norm import add_norm
from ernie.model.cache import ExtendedCache, KeyValueCache, Pairs
from ernie.model.config import EncoderConfig


class Source(NamedTuple):
    """What target tokens cross-attend to.

    `cache` holds the keys and values of the sources, see `Decoder.read`.  `queries` groups the target tokens by source:
    those of its n-th sequence attend to the n-th source.  `mask` limits how much of it each token sees (default: all).
    """

    cache: KeyValueCache
    queries: Layout
    mask: Mask | None = None


class Decoder(nn.Layer):
    """A stack of post-norm Transformer layers with causal self-attention and cross-attention, (T, D) -> (T, D).

    Vaswani et al. (2017, arXiv 1706.03762), section 3.1; configured like an encoder.
    """

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.layers = nn.LayerList([DecoderLayer(config) for _ in range(config.layers)])

    def read(self, source_SD: Tensor) -> Pairs:
        """Return each layer's cross-attention keys and values for an encoder's vectors."""
        return tuple(layer.read(source_SD) for layer in self.layers)

    def forward(self, x_TD: Tensor, layout: Layout, source: Source, cache: KeyValueCache | None = None) -> Tensor:
        """Decode all tokens in parallel, as in training: each sees those before it, and its part of the source."""
        return self.forward_cached(x_TD, layout, source, cache or KeyValueCache.empty(layout.sequences))[0]

    def forward_cached(
        self, x_TD: Tensor, layout: Layout, source: Source, cache: KeyValueCache, window: int | None = None
    ) -> tuple[Tensor, KeyValueCache]:
        """Decode new tokens after those in the cache; return the output and the extended cache.

        With a `window` each token attends to at most that many target tokens, itself included.
        """
        extended = cache.extension(layout, window=window)
        for index, layer in enumerate(self.layers):
            x_TD = layer(x_TD, source, extended, index)
        return x_TD, extended.cache()


class DecoderLayer(nn.Layer):
    """Self-attention, cross-attention and a feed-forward network.

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
        """Project source vectors to cross-attention keys and values."""
        return _linear(self.source_k, source_SD), _linear(self.source_v, source_SD)

    def forward(self, x_TD: Tensor, source: Source, extended: ExtendedCache, index: int) -> Tensor:
        """Return the output, (T, D) -> (T, D), and append the self-attention keys and values to the cache."""
        heads, dropout = self._heads, self.attention_dropout if self.training else 0.0
        extended.append((_linear(self.k, x_TD), _linear(self.v, x_TD)))
        attended_TD = extended.attend(_linear(self.q, x_TD), heads, dropout)
        x_TD = self._add_norm(self.attention_norm, x_TD, _linear(self.attention_out, attended_TD))
        q_TD = _linear(self.source_q, x_TD)
        attended_TD = source.cache.attend(index, q_TD, source.queries, heads, dropout, source.mask)
        x_TD = self._add_norm(self.source_norm, x_TD, _linear(self.source_out, attended_TD))
        inner_TF = linear(x_TD, self.inner.weight, self.inner.bias, self._activation)
        return self._add_norm(self.output_norm, x_TD, _linear(self.outer, inner_TF))

    def _add_norm(self, norm: nn.LayerNorm, residual_TD: Tensor, x_TD: Tensor) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        return add_norm(residual_TD, x_TD, norm.weight, norm.bias, self._epsilon, dropout)


def _linear(layer: nn.Linear, x_TD: Tensor) -> Tensor:
    return linear(x_TD, layer.weight, layer.bias)

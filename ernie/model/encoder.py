"""The encoder: vectors in, vectors out.  Legend: T packed tokens, D width, F = inner width."""

from __future__ import annotations

import paddle.nn.functional as F
from paddle import Tensor, nn
from paddle.distributed.fleet.utils import recompute

from ernie.data.batch import Layout
from ernie.kernels.attention import attention
from ernie.model.config import EncoderConfig
from ernie.model.layers import Linear


class Encoder(nn.Layer):
    """A stack of post-norm Transformer layers over packed sequences, (T, D) -> (T, D).

    The shape of BERT's encoder (Devlin et al., 2019, section 3) and of ERNIE's.  What the vectors stand for, words or
    speech, is not its business.

    With `recompute` the backward pass computes each layer a second time instead of keeping what is inside it: the
    same gradients for less memory and about a third more time (Chen et al., 2016, arXiv 1604.06174).
    """

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.layers = nn.LayerList([EncoderLayer(config) for _ in range(config.layers)])
        self.recompute = False

    def forward(self, x_TD: Tensor, layout: Layout, states: list[Tensor] | None = None) -> Tensor:
        """Encode; `states`, if given, is extended by each layer's output."""
        for layer in self.layers:
            # Without a gradient to its input, Paddle's recompute would drop those to the layer's weights.
            again = self.recompute and not x_TD.stop_gradient
            x_TD = recompute(layer, x_TD, layout) if again else layer(x_TD, layout)
            if states is not None:
                states.append(x_TD)
        return x_TD


class EncoderLayer(nn.Layer):
    """Self-attention and a feed-forward network, each followed by residual and LayerNorm."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        D, self.heads = config.hidden_size, config.heads
        self.q, self.k, self.v = Linear(D, D), Linear(D, D), Linear(D, D)
        self.attention_out = Linear(D, D)
        self.attention_norm = nn.LayerNorm(D, epsilon=config.layer_norm_epsilon)
        self.inner = Linear(D, config.intermediate_size)
        self.outer = Linear(config.intermediate_size, D)
        self.output_norm = nn.LayerNorm(D, epsilon=config.layer_norm_epsilon)
        self.dropout = nn.Dropout(config.dropout)
        self.attention_dropout = config.attention_dropout
        self.activation = getattr(F, config.activation)

    def forward(self, x_TD: Tensor, layout: Layout) -> Tensor:
        drop = self.attention_dropout if self.training else 0.0
        mixed_TD = attention(self.q(x_TD), self.k(x_TD), self.v(x_TD), layout, self.heads, drop)
        x_TD = self.attention_norm(x_TD + self.dropout(self.attention_out(mixed_TD)))
        inner_TF = self.activation(self.inner(x_TD))
        return self.output_norm(x_TD + self.dropout(self.outer(inner_TF)))

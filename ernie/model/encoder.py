"""The encoder: vectors in, vectors out.  Legend: T packed tokens, D width."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import paddle
from paddle import Tensor, nn
from paddle.distributed.fleet.utils import recompute

from ernie.data.batch import Layout
from ernie.errors import UserError
from ernie.kernels.attention import attention
from ernie.kernels.layer import LayerSettings, LayerWeights, transformer_layer
from ernie.kernels.linear import linear
from ernie.kernels.mask import Mask
from ernie.kernels.norm import add_norm
from ernie.kernels.stack import TransformerStack
from ernie.model.config import EncoderConfig
from ernie.model.memory import Grown, Memory


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
        self._settings = LayerSettings(config.heads, config.activation, config.layer_norm_epsilon)
        self._stack = TransformerStack()

    def forward(
        self,
        x_TD: Tensor,
        layout: Layout,
        states: list[Tensor] | None = None,
        needed: np.ndarray | None = None,
        mask: Mask | None = None,
    ) -> Tensor:
        """Encode; `states`, if given, is extended by each layer's output.

        `needed`, in ascending order, are the tokens whose output is wanted, all if left out; the others' is zero.
        `mask` says which tokens of its sequence each token sees, all if left out.
        """
        inferring = not self.training and not paddle.is_grad_enabled()
        if inferring and states is None and mask is None and all(map(_is_bare, self.layers)):
            weights = [layer.weights() for layer in self.layers]
            return self._stack(x_TD, layout, weights, self._settings, needed)
        for number, layer in enumerate(self.layers, 1):
            rows = needed if number == len(self.layers) else None
            # Without a gradient to its input, Paddle's recompute would drop those to the layer's weights.
            again = self.recompute and not x_TD.stop_gradient
            x_TD = recompute(layer, x_TD, layout, rows, mask) if again else layer(x_TD, layout, rows, mask)
            if states is not None:
                states.append(x_TD)
        return x_TD

    def go_on(self, x_TD: Tensor, layout: Layout, before: Memory, together: bool = False) -> tuple[Tensor, Memory]:
        """Encode tokens that follow those `before`, each of which sees no later ones; they join it in what is returned.

        What comes out is what `forward` gives with `Mask.causal`; tokens that come `together` see one another, as with
        `Mask.chunk`.
        """
        grown = before.places(layout, together)
        layers = []
        for number, layer in enumerate(self.layers):
            x_TD, pair = layer.go_on(x_TD, layout, grown, number)
            layers.append(pair)
        return x_TD, Memory(grown.layout, tuple(layers))


def _is_bare(layer: nn.Layer) -> bool:
    """Whether a layer is its weights and no more: none of somebody's own, and without hooks, which wait for a call."""
    return type(layer) is EncoderLayer and not layer._forward_pre_hooks and not layer._forward_post_hooks


class EncoderLayer(nn.Layer):
    """Self-attention and a feed-forward network, each followed by residual and LayerNorm.

    Its parts hold weights only, with which the kernels compute: they are never called.  Raises UserError for one that
    is to be replaced by a layer of another class.
    """

    def __init__(self, config: EncoderConfig):
        super().__init__()
        D, F = config.hidden_size, config.intermediate_size
        self.q, self.k, self.v = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)
        self.attention_out = nn.Linear(D, D)
        self.attention_norm = nn.LayerNorm(D, epsilon=config.layer_norm_epsilon)
        self.inner = nn.Linear(D, F)
        self.outer = nn.Linear(F, D)
        self.output_norm = nn.LayerNorm(D, epsilon=config.layer_norm_epsilon)
        self._settings = LayerSettings(config.heads, config.activation, config.layer_norm_epsilon)
        self.dropout, self.attention_dropout = config.dropout, config.attention_dropout

    def __setattr__(self, name: str, value: Any) -> None:
        known = self.__dict__.get("_sub_layers", {}).get(name)
        if known is not None and type(value) is not type(known):
            raise UserError(
                f"{name}: of the {type(known).__name__} in an encoder layer only the weights are used, and it is never "
                f"called; {type(value).__name__} in its place would do nothing. Change its weights, or put a layer of "
                "your own around the whole encoder layer"
            )
        super().__setattr__(name, value)

    def forward(self, x_TD: Tensor, layout: Layout, rows: np.ndarray | None = None, mask: Mask | None = None) -> Tensor:
        settings = self._settings
        if self.training:
            settings = replace(settings, dropout=self.dropout, attention_dropout=self.attention_dropout)
        return transformer_layer(x_TD, layout, self.weights(), settings, mask, rows)

    def go_on(self, x_TD: Tensor, layout: Layout, grown: Grown, number: int) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The output for tokens that follow others, without dropout, and the keys and values of all of them."""
        w, s = self.weights(), self._settings
        pair = grown(number, self.read(x_TD))
        mixed_TD = attention(linear(x_TD, w.q, w.q_bias), *pair, layout, s.heads, keys=grown.layout, mask=grown.mask)
        x_TD = add_norm(x_TD, linear(mixed_TD, w.out, w.out_bias), w.gain1, w.offset1, s.epsilon)
        inner_TF = linear(x_TD, w.inner, w.inner_bias, s.activation)
        return add_norm(x_TD, linear(inner_TF, w.outer, w.outer_bias), w.gain2, w.offset2, s.epsilon), pair

    def read(self, x_TD: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of vectors."""
        w = self.weights()
        return linear(x_TD, w.k, w.k_bias), linear(x_TD, w.v, w.v_bias)

    def rows(self, layout: Layout) -> int:
        """How many rows the layer takes of a batch."""
        return layout.tokens

    def weights(self) -> LayerWeights:
        """Its parameters as the kernels take them."""
        # Not self.q.weight: Paddle looks attributes up in Python, which for all layers takes a tenth of a short answer.
        parts = {name: part._parameters for name, part in self._sub_layers.items()}
        linears = [parts[name] for name in ("q", "k", "v", "attention_out", "inner", "outer")]
        norms = [parts[name] for name in ("attention_norm", "output_norm")]
        return LayerWeights(
            *(linear["weight"] for linear in linears),
            *(linear["bias"] for linear in linears),
            *(norm[name] for norm in norms for name in ("weight", "bias")),
        )

"""The Transformer encoder.  Legend: T packed tokens, D width, F inner width."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import paddle
from paddle import Tensor, nn
from paddle.distributed.fleet.utils import recompute

from ernie.data.batch import Layout
from ernie.errors import Remark, UserError
from ernie.kernels.layer import operators, routed, transformer_layer
from ernie.kernels.linear import linear
from ernie.kernels.mask import Mask
from ernie.kernels.norm import add_norm
from ernie.kernels.precision import current
from ernie.kernels.stack import TransformerStack
from ernie.kernels.types import Adapted, Factors, LayerSettings, LayerWeights
from ernie.model.cache import ExtendedCache, KeyValueCache
from ernie.model.config import EncoderConfig


class Encoder(nn.Layer):
    """A stack of post-norm Transformer layers over packed sequences, (T, D) -> (T, D).

    The architecture of BERT's encoder (Devlin et al., 2019, section 3) and of ERNIE's.  The input vectors may represent
    words or speech.

    `recompute` enables activation checkpointing: the backward pass recomputes each layer instead of storing its
    activations.  Gradients are the same, with less memory and about a third more time (Chen et al., 2016, arXiv
    1604.06174).
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
        adapted: Sequence[Adapted] = (),
        between: Callable[[int, Tensor], Tensor] | None = None,
    ) -> Tensor:
        """Encode packed sequences; each layer's output is appended to `states`, if given.

        `needed` holds, in ascending order, the indices of the tokens whose output is wanted (default: all); the other
        outputs are zero.  `mask` restricts which tokens of its sequence each token attends to (default: all).  The
        tokens of `adapted` have low-rank updates of the layers' matrices, in inference alone.  `between` changes the
        output of each layer, given its index from 0.
        """
        inferring = not self.training and not paddle.is_grad_enabled()
        plain = states is None and mask is None and between is None
        if inferring and plain and all(map(_is_plain, self.layers)):
            weights = [layer.weights() for layer in self.layers]
            return self._stack(x_TD, layout, weights, self._settings, needed, adapted)
        if adapted:
            raise UserError("adapted: only plain encoder layers take updates, for inference under paddle.no_grad()")
        if not inferring:
            _remark_on_int8("outside inference under paddle.no_grad()")
        elif states is not None:
            _remark_on_int8("for the outputs of each layer")
        else:
            _remark_on_int8("with an attention mask" if mask is not None else "with hooks or other layers")
        for index, layer in enumerate(self.layers, 1):
            rows = needed if index == len(self.layers) else None
            # Where the input needs no gradient, Paddle's recompute would drop the gradients of the layer's weights.
            recomputed = self.recompute and not x_TD.stop_gradient
            x_TD = recompute(layer, x_TD, layout, rows, mask) if recomputed else layer(x_TD, layout, rows, mask)
            if between is not None:
                x_TD = between(index - 1, x_TD)
            if states is not None:
                states.append(x_TD)
        return x_TD

    def forward_cached(self, x_TD: Tensor, layout: Layout, cache: KeyValueCache) -> tuple[Tensor, KeyValueCache]:
        """Encode new tokens after those in the cache, causally; return the output and the extended cache.

        The result equals that of `forward` with `Mask.causal`.
        """
        _remark_on_int8("token by token")
        return self._against(cache.extension(layout), x_TD)

    def forward_chunks(
        self,
        x_TD: Tensor,
        layout: Layout,
        cache: KeyValueCache,
        chunk: int,
        before: int,
        between: Callable[[int, Tensor, ExtendedCache], Tensor] | None = None,
    ) -> tuple[Tensor, KeyValueCache]:
        """Encode chunks of `chunk` new tokens of each sequence; return the output and the cache for the next ones.

        Each chunk attends to itself and to the `before` tokens before it, as with `Mask.chunk`.  The result is that of
        one chunk after the other.  `between` changes the output of each layer, and may append to the cache as a layer.
        """
        _remark_on_int8("in chunks")
        return self._against(cache.windows(layout, chunk, before), x_TD, between)

    def _against(
        self,
        extended: ExtendedCache,
        x_TD: Tensor,
        between: Callable[[int, Tensor, ExtendedCache], Tensor] | None = None,
    ) -> tuple[Tensor, KeyValueCache]:
        """Encode new tokens against cached ones; return the output and the extended cache."""
        for index, layer in enumerate(self.layers):
            x_TD = layer.forward_cached(x_TD, extended)
            if between is not None:
                x_TD = between(index, x_TD, extended)
        return x_TD, extended.cache()


def _remark_on_int8(where: str) -> None:
    """Warn, if int8 is set, that it is not used here."""
    if current() == "int8":
        lower = f"int8 is not implemented {where}: these layers compute in a higher precision"
        warnings.warn(lower, Remark, stacklevel=5)


def _is_plain(layer: nn.Layer) -> bool:
    """Whether a layer can be computed from its weights alone: not a subclass or wrapper, and without forward hooks."""
    return type(layer) is EncoderLayer and not layer._forward_pre_hooks and not layer._forward_post_hooks


class EncoderLayer(nn.Layer):
    """Self-attention and a feed-forward network, each followed by residual and LayerNorm.

    The sublayers only hold the weights that the kernels use and are never called.  Assigning a layer of another class
    to one of them raises UserError.
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
        self.factors: Mapping[str, Factors] = {}  # by which matrices are trained, by their names in LayerWeights

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
        return transformer_layer(x_TD, layout, self.weights(), settings, mask, rows, self.factors)

    def operators(self, x_TD: Tensor, layout: Layout, mask: Mask | None = None) -> Iterator[tuple[str, Tensor]]:
        """Yield the output of each operator by the name of its sublayer, in the order of computation, without dropout.

        The layer itself computes them in one kernel where there is one, which rounds otherwise.
        """
        return operators(x_TD, layout, self.routed_weights(), self._settings, mask)

    def forward_cached(self, x_TD: Tensor, extended: ExtendedCache) -> Tensor:
        """Compute new tokens against a cache, without dropout, and append their keys and values to it."""
        w, s = self.routed_weights(), self._settings
        extended.append(self.read(x_TD))
        attended_TD = extended.attend(linear(x_TD, w.q, w.q_bias), s.heads)
        x_TD = add_norm(x_TD, linear(attended_TD, w.out, w.out_bias), w.gain1, w.offset1, s.epsilon)
        inner_TF = linear(x_TD, w.inner, w.inner_bias, s.activation)
        return add_norm(x_TD, linear(inner_TF, w.outer, w.outer_bias), w.gain2, w.offset2, s.epsilon)

    def read(self, x_TD: Tensor) -> tuple[Tensor, Tensor]:
        """Project vectors to keys and values."""
        w = self.routed_weights()
        return linear(x_TD, w.k, w.k_bias), linear(x_TD, w.v, w.v_bias)

    def rows(self, layout: Layout) -> int:
        """Return the number of rows of a batch that the layer computes."""
        return layout.tokens

    def routed_weights(self) -> LayerWeights:
        """Return the parameters; matrices that are trained by factors pass their gradients on to these."""
        return routed(self.weights(), self.factors)

    def weights(self) -> LayerWeights:
        """Return the parameters in the form that the kernels take."""
        # Not self.q.weight: Paddle's Python attribute lookup, over all layers, takes a tenth of a short forward pass.
        parts = {name: part._parameters for name, part in self._sub_layers.items()}
        linears = [parts[name] for name in ("q", "k", "v", "attention_out", "inner", "outer")]
        norms = [parts[name] for name in ("attention_norm", "output_norm")]
        return LayerWeights(
            *(linear["weight"] for linear in linears),
            *(linear["bias"] for linear in linears),
            *(norm[name] for norm in norms for name in ("weight", "bias")),
        )

"""A decoder on top of an encoder, with the encoder's vocabulary.

Legend: U packed target tokens, N sequences, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor, nn

from ernie.data.batch import Layout
from ernie.kernels.embedding import embed
from ernie.kernels.precision import to_numpy
from ernie.kernels.upload import on_device
from ernie.kernels.vocabulary import vocabulary_cross_entropy, vocabulary_logits
from ernie.model.cache import KeyValueCache
from ernie.model.decoder import Decoder, Source
from ernie.model.inference import finite
from ernie.model.losses import Loss

if TYPE_CHECKING:
    from ernie.model.ernie import ErnieModel


class TranslationHead(nn.Layer):
    """A Transformer decoder with its own positions and the encoder's embedding matrix, tied for input and output.

    Vaswani et al. (2017, arXiv 1706.03762), section 3, with the weight tying of section 3.4.  With a `window` each
    token attends to at most that many target tokens, itself included.  Positions wrap around after twice as many, so
    that outputs may be longer than any seen in training.
    """

    def __init__(self, model: ErnieModel, layers: int | None = None, window: int | None = None):
        super().__init__()
        config = replace(model.config, layers=layers or model.config.layers)
        D = config.hidden_size
        self.decoder = Decoder(config)
        self.position = nn.Embedding(config.max_positions, D)
        self.norm = nn.LayerNorm(D, epsilon=config.layer_norm_epsilon)
        self.bias = self.create_parameter([config.vocab_size], is_bias=True)
        self.dropout, self._epsilon = config.dropout, config.layer_norm_epsilon
        self.window = window
        self.tie_embedding(model.embedding.token.weight)

    def tie_embedding(self, matrix: Tensor, gather: Callable[[Tensor], Tensor] | None = None) -> None:
        """Use the encoder's embedding matrix; if `matrix` is one shard of it, `gather` gathers the whole."""
        # In a tuple: the encoder's own parameter, not to be registered again under this layer.
        self._embedding_matrix, self._gather = (matrix,), gather

    @property
    def embedding_matrix(self) -> Tensor:
        """The encoder's embedding matrix, or this process's shard of it."""
        return self._embedding_matrix[0]

    def _whole_matrix(self) -> Tensor:
        return self.embedding_matrix if self._gather is None else self._gather(self.embedding_matrix)

    def forward(self, ids_U: np.ndarray, layout: Layout, source: Source) -> Tensor:
        """Return the hidden states (U, D), each of which predicts the next token, in parallel as in training."""
        return self.forward_cached(ids_U, layout, source, KeyValueCache.empty(layout.sequences))[0]

    def forward_cached(
        self,
        ids_U: np.ndarray,
        layout: Layout,
        source: Source,
        cache: KeyValueCache,
        before: np.ndarray | None = None,
    ) -> tuple[Tensor, KeyValueCache]:
        """Decode new tokens after those in the cache; return their hidden states and the extended cache.

        `before` (N,) is the number of earlier tokens, if the cache no longer holds all of them.
        """
        lengths = cache.layout.lengths if before is None else before
        positions_U = layout.positions + np.repeat(lengths, layout.lengths)
        return self.decoder.forward_cached(self.embed(ids_U, positions_U), layout, source, cache, self.window)

    def embed(self, ids_U: np.ndarray, positions_U: np.ndarray) -> Tensor:
        """Return the decoder's input (U, D): tokens at their positions, embedded."""
        if self.window is not None:
            positions_U = positions_U % (2 * self.window)
        matrices, dropout = [self._whole_matrix(), self.position.weight], self.dropout if self.training else 0.0
        return embed([ids_U, positions_U], matrices, self.norm.weight, self.norm.bias, self._epsilon, dropout)

    def loss(self, x_UD: Tensor, labels_U: np.ndarray, smoothing: float = 0.0) -> Loss:
        """Return the cross entropy of the next tokens (U,), `smoothing` of whose mass is spread over the vocabulary.

        Label smoothing: Szegedy et al., 2016 (arXiv 1512.00567), section 7.
        """
        matrix_VD = self._whole_matrix()
        total = vocabulary_cross_entropy(x_UD, matrix_VD, self.bias, labels_U)
        if smoothing:
            # The mean of -log p over the vocabulary is -log p of the label, plus its logit, minus the mean logit.
            labels = on_device(labels_U)
            centered_UD = F.embedding(labels, matrix_VD) - matrix_VD.mean(0, keepdim=True)
            centered_bias_U = paddle.gather(self.bias, labels) - self.bias.mean()
            total = total + smoothing * ((x_UD * centered_UD).sum() + centered_bias_U.sum())
        return Loss(total, len(labels_U), None, labels_U)

    def scores(self, x_ND: Tensor) -> np.ndarray:
        """Return the log probability of each next token, (N, V).  Raises NotFinite for logits that are not finite."""
        return finite(self.row_scores(x_ND))

    def row_scores(self, x_ND: Tensor) -> np.ndarray:
        """Return the log probability of each next token, (N, V): NaN in rows whose logits are not finite."""
        # In NumPy: on CPU, Paddle's log_softmax takes a hundred times as long, more than the rest of a decoding step.
        scores_NV = to_numpy(vocabulary_logits(x_ND, self._whole_matrix(), self.bias))
        with np.errstate(invalid="ignore"):
            scores_NV -= scores_NV.max(1, keepdims=True)
            scores_NV -= np.log(np.exp(scores_NV).sum(1, keepdims=True))
        return scores_NV

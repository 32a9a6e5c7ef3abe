"""A decoder on an encoder: it writes tokens of the encoder's own vocabulary.

Legend: U tokens that are written, N sequences, D width, V vocabulary.
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
from ernie.kernels.vocabulary import vocabulary_cross_entropy
from ernie.model.decoder import Decoder, Source
from ernie.model.losses import Loss
from ernie.model.memory import Memory

if TYPE_CHECKING:
    from ernie.model.ernie import ErnieModel


class TranslationHead(nn.Layer):
    """A Transformer decoder with positions of its own and the encoder's table of tokens, on both its sides.

    Vaswani et al. (2017, arXiv 1706.03762), section 3; the shared table is that of section 3.4.  With `remembered` each
    token sees so many at most of what is written, itself the last of them, and positions begin anew after twice as
    many: what is written may then be longer than anything that was learnt.
    """

    def __init__(self, model: ErnieModel, layers: int | None = None, remembered: int | None = None):
        super().__init__()
        config = replace(model.config, layers=layers or model.config.layers)
        D = config.hidden_size
        self.decoder = Decoder(config)
        self.position = nn.Embedding(config.max_positions, D)
        self.norm = nn.LayerNorm(D, epsilon=config.layer_norm_epsilon)
        self.bias = self.create_parameter([config.vocab_size], is_bias=True)
        self.dropout, self._epsilon = config.dropout, config.layer_norm_epsilon
        self.remembered = remembered
        self.read_table(model.embedding.token.weight)

    def read_table(self, table: Tensor, joined: Callable[[Tensor], Tensor] | None = None) -> None:
        """Write by the encoder's table of tokens; where it is a part of one, `joined` gives the whole."""
        # In a tuple: the encoder's own, not to be registered a second time under this layer.
        self._table, self._joined = (table,), joined

    @property
    def table(self) -> Tensor:
        """The encoder's table of tokens, or this process's part of it."""
        return self._table[0]

    def _whole_table(self) -> Tensor:
        return self.table if self._joined is None else self._joined(self.table)

    def forward(self, ids_U: np.ndarray, layout: Layout, source: Source) -> Tensor:
        """The vectors (U, D) of what is to follow each token, all of which are there, as in learning."""
        return self.go_on(ids_U, layout, source, Memory.empty(layout.sequences))[0]

    def go_on(
        self, ids_U: np.ndarray, layout: Layout, source: Source, written: Memory, before: np.ndarray | None = None
    ) -> tuple[Tensor, Memory]:
        """The same for tokens that follow those `written`, which they join.

        `before` (N,) says how many were written where not all of them are in the memory any more.
        """
        lengths = written.layout.lengths if before is None else before
        places_U = layout.positions + np.repeat(lengths, layout.lengths)
        return self.decoder.go_on(self.embed(ids_U, places_U), layout, source, written, self.remembered)

    def embed(self, ids_U: np.ndarray, places_U: np.ndarray) -> Tensor:
        """What the decoder is given (U, D): tokens at their places."""
        if self.remembered is not None:
            places_U = places_U % (2 * self.remembered)
        tables, dropout = [self._whole_table(), self.position.weight], self.dropout if self.training else 0.0
        return embed([ids_U, places_U], tables, self.norm.weight, self.norm.bias, self._epsilon, dropout)

    def loss(self, x_UD: Tensor, labels_U: np.ndarray, smoothing: float = 0.0) -> Loss:
        """The cross entropy of what follows, (U,), of whose probability so much is spread over the vocabulary.

        Label smoothing: Szegedy et al., 2016 (arXiv 1512.00567), section 7.
        """
        table_VD = self._whole_table()
        total = vocabulary_cross_entropy(x_UD, table_VD, self.bias, labels_U)
        if smoothing:
            # The mean over all tokens of -log p is -log p of the right one, plus its logit, less the mean logit.
            labels = paddle.to_tensor(labels_U)
            rows_UD = F.embedding(labels, table_VD) - table_VD.mean(0, keepdim=True)
            biases_U = paddle.gather(self.bias, labels) - self.bias.mean()
            total = total + smoothing * ((x_UD * rows_UD).sum() + biases_U.sum())
        return Loss(total, len(labels_U), None, labels_U)

    def scores(self, x_ND: Tensor) -> np.ndarray:
        """The logarithm of each token's probability to come next, (N, V)."""
        logits_NV = paddle.matmul(x_ND, self._whole_table(), transpose_y=True) + self.bias
        # By NumPy: on a CPU Paddle's log_softmax takes a hundred times as long, more than everything else together.
        scores_NV = to_numpy(logits_NV)
        scores_NV -= scores_NV.max(1, keepdims=True)
        scores_NV -= np.log(np.exp(scores_NV).sum(1, keepdims=True))
        return scores_NV

"""Prediction heads: from the encoder's output to logits, computed only at the positions needed.

Legend: T packed tokens, N sequences, P labeled tokens, D width, C classes, V vocabulary.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import numpy as np
import paddle
from paddle import Tensor, nn

from ernie.data.batch import Layout
from ernie.errors import UserError
from ernie.kernels.elementwise import elementwise
from ernie.kernels.layer_norm import layer_norm
from ernie.kernels.linear import linear
from ernie.kernels.precision import is_batch_invariant, precision
from ernie.kernels.upload import on_device
from ernie.kernels.vocabulary import (
    vocabulary_cross_entropy,
    vocabulary_cross_entropy_and_samples,
    vocabulary_logits,
)
from ernie.model.config import EncoderConfig
from ernie.model.embeddings import TextEmbedding
from ernie.model.losses import Loss, cross_entropy
from ernie.model.weights import arrays, read_arrays, save_arrays, set_weights


class Pooler(nn.Layer):
    """Pool each sequence's first token through a tanh layer, (T, D) -> (N, D)."""

    def __init__(self, config: EncoderConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden_TD: Tensor, layout: Layout) -> Tensor:
        first_ND = paddle.gather(hidden_TD, on_device(layout.starts))
        return elementwise(paddle.tanh, _apply(self.dense, first_ND))


class HeadModel(Protocol):
    """What heads share with the encoder that they are put on."""

    config: EncoderConfig
    embedding: TextEmbedding
    pooler: Pooler


class SequenceHead(nn.Layer):
    """A sequence classifier on top of the model's pooler, (T, D) -> (N, C).

    All such heads share the pooler, as in BERT and ERNIE, so that it is already trained when fine-tuning begins.
    """

    def __init__(self, model: HeadModel, classes: int):
        super().__init__()
        self.dropout = nn.Dropout(model.config.dropout)
        self.out = nn.Linear(model.config.hidden_size, classes)
        self._pooler = (model.pooler,)  # in a tuple: the encoder's own, not to be registered again

    def forward(self, hidden_TD: Tensor, layout: Layout) -> Tensor:
        return _apply(self.out, self.dropout(self._pooler[0](hidden_TD, layout)))


class TokenHead(nn.Layer):
    """A classifier of the tokens at `positions` (P,), (T, D) -> (P, C)."""

    def __init__(self, config: EncoderConfig, classes: int):
        super().__init__()
        self.dropout = nn.Dropout(config.dropout)
        self.out = nn.Linear(config.hidden_size, classes)

    def forward(self, hidden_TD: Tensor, positions: np.ndarray) -> Tensor:
        return _apply(self.out, self.dropout(paddle.gather(hidden_TD, on_device(positions))))


class MaskedTokenHead(nn.Layer):
    """Vocabulary logits at the masked positions (P,), (T, D) -> (P, V).

    As in BERT: a dense layer, activation and LayerNorm, then a product with the token embedding matrix and a bias.
    `task_id` is the task embedding that the head was trained with.  `width` is that of the hidden states, if it is not
    the encoder's.
    """

    def __init__(self, model: HeadModel, width: int | None = None):
        super().__init__()
        config = model.config
        self.transform = nn.Linear(width or config.hidden_size, config.hidden_size)
        self._epsilon = config.layer_norm_epsilon
        self.norm = nn.LayerNorm(config.hidden_size, epsilon=self._epsilon)
        self._activation = config.activation
        self.bias = self.create_parameter([config.vocab_size], is_bias=True)
        self.task_id = 0
        # In a tuple: the encoder's own parameter, not to be registered again under this layer.
        self._embedding_matrix = (model.embedding.token.weight,)

    @property
    def embedding_matrix(self) -> Tensor:
        """The encoder's token embedding matrix (V, D), which also projects to the logits."""
        return self._embedding_matrix[0]

    @classmethod
    def read(cls, model: HeadModel, path: Path) -> MaskedTokenHead:
        """Read a head written by `write`.  Raises UserError when it is damaged or does not fit `model`."""
        head, values = cls(model), read_arrays(path)
        head.task_id = _task_id(values.pop("task_id", np.array(0)), path)
        set_weights(head, values, str(path))
        return head

    def stored(self) -> dict[str, np.ndarray]:
        """Return what is stored of the head: not the embedding matrix, which belongs to the model."""
        return {**arrays(self), "task_id": np.array(self.task_id)}

    def write(self, path: Path) -> None:
        """Write the head as safetensors."""
        save_arrays(self.stored(), path)

    def initialize_bias(self, frequencies_V: np.ndarray) -> None:
        """Set the bias to the log frequencies (V,), so that the untrained head predicts the unigram distribution."""
        self.bias.set_value(paddle.to_tensor(np.log(frequencies_V).astype("float32")))

    def forward(self, hidden_TD: Tensor, positions: np.ndarray) -> Tensor:
        return vocabulary_logits(self._transformed(hidden_TD, positions), self.embedding_matrix, self.bias)

    def loss(self, hidden_TD: Tensor, positions: np.ndarray, labels: np.ndarray) -> Loss:
        """Return the cross entropy of `labels` (P,), the original tokens at `positions` (P,).

        In training, the logits, by far the largest tensor of a step, are not stored.
        """
        if not paddle.is_grad_enabled():
            return cross_entropy(self(hidden_TD, positions), labels)
        x_PD = self._transformed(hidden_TD, positions)
        total = vocabulary_cross_entropy(x_PD, self.embedding_matrix, self.bias, labels)
        return Loss(total, len(labels), None, labels)

    def loss_and_samples(
        self, hidden_TD: Tensor, positions: np.ndarray, labels: np.ndarray, draws: np.ndarray
    ) -> tuple[Tensor, np.ndarray]:
        """Return the sum of `loss`, and a token (P,) drawn for each position; numbers `draws` from 0 to 1 decide."""
        x_PD = self._transformed(hidden_TD, positions)
        return vocabulary_cross_entropy_and_samples(x_PD, self.embedding_matrix, self.bias, labels, draws)

    def _transformed(self, hidden_TD: Tensor, positions: np.ndarray) -> Tensor:
        x_PD = paddle.gather(hidden_TD, on_device(positions))
        x_PD = linear(x_PD, self.transform.weight, self.transform.bias, self._activation)
        return layer_norm(x_PD, self.norm.weight, self.norm.bias, self._epsilon)


def _apply(layer: nn.Linear, x_ND: Tensor) -> Tensor:
    """Apply a linear layer; within `batch_invariant` on a CPU by our kernel, which computes each row as if alone."""
    if not is_batch_invariant() or not x_ND.place.is_cpu_place():
        return layer(x_ND)
    with precision("fp32"):
        return linear(x_ND, layer.weight, layer.bias)


def _task_id(found: np.ndarray, path: Path) -> int:
    if found.size != 1 or not np.issubdtype(found.dtype, np.integer) or found.item() < 0:
        raise UserError(f"{path}: task_id: expected one whole number from 0, found {found.tolist()}")
    return int(found.item())

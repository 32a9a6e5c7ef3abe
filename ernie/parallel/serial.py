"""The computation of several processes in one of them, with the dropout that each of them draws.

Data and sharding parallel processes draw that of one process anyway.  Those of a pipeline draw it for each piece of the
model, and tensor parallel ones for their own heads, or tokens.

Legend: T packed tokens, D width, R processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor, nn

from ernie.data import seeded_rng
from ernie.data.batch import Layout, Packed
from ernie.kernels.attention import attention
from ernie.kernels.layer_norm import layer_norm
from ernie.kernels.linear import linear
from ernie.kernels.mask import Mask
from ernie.kernels.norm import add_norm
from ernie.model.embeddings import TextEmbedding
from ernie.model.encoder import EncoderLayer
from ernie.parallel.layout import ParallelConfig
from ernie.parallel.micro_batch import MicroBatch
from ernie.parallel.tensor import replace

if TYPE_CHECKING:
    from ernie.model.losses import Loss
    from ernie.parallel.pipeline import Staged


class SerialModel:
    """A model that one process trains as the processes of a layout would.

    Its layers are replaced in place, and their parameters keep their names.  Give `loss` and `before` to the trainer.
    `loss` is that of the model unless the layout has a pipeline.
    """

    def __init__(self, model: Staged, layout: ParallelConfig, loss: Callable[[str, Packed], Loss]) -> None:
        self._model, self._loss, self._pipelined = model, loss, layout.pipeline > 1
        self._micros: dict[int, MicroBatch] = {}
        if layout.tensor > 1:
            layer = cast("nn.Layer", model)
            replace(layer, TextEmbedding, SerialEmbedding)
            replace(layer, EncoderLayer, lambda whole: SerialLayer(whole, layout.tensor, layout.sequence))

    def before(self, micros: Sequence[MicroBatch]) -> None:
        """Take the micro-batches of a step, ahead of their passes."""
        self._micros = {id(micro.batch): micro for micro in micros}

    def loss(self, task: str, batch: Packed) -> Loss:
        """Return the loss of a micro-batch."""
        if not self._pipelined:
            return self._loss(task, batch)
        micro, ernie = self._micros[id(batch)], self._model.ernie
        seen, mask = self._model.encoder_input(task, batch)
        micro.seed(0)
        x_TD = ernie.embedding(seen.ids, seen.segments, seen.layout.positions, self._model.task_embedding(task))
        for number, layer in enumerate(ernie.encoder.layers, 1):
            micro.seed(number)
            x_TD = layer(x_TD, seen.layout, None, mask)
        micro.seed(-1)
        return self._model.head_loss(task, x_TD, batch)


class SerialEmbedding(TextEmbedding):
    """TextEmbedding by the operators of tensor parallel processes."""

    def __init__(self, whole: TextEmbedding):
        nn.Layer.__init__(self)  # with the parameters of `whole`
        for name, part in whole._sub_layers.items():
            setattr(self, name, part)
        self.task, self.dropout, self._epsilon = whole.task, whole.dropout, whole._epsilon

    def forward(
        self, ids_T: np.ndarray, segments_T: np.ndarray, positions_T: np.ndarray, tasks_T: np.ndarray | int
    ) -> Tensor:
        x_TD = self.token(paddle.to_tensor(ids_T))
        x_TD = x_TD + self.position(paddle.to_tensor(positions_T)) + self.segment(paddle.to_tensor(segments_T))
        if self.task is not None:
            x_TD = x_TD + self.task(paddle.to_tensor(np.broadcast_to(tasks_T, ids_T.shape).copy()))
        x_TD = layer_norm(x_TD, self.norm.weight, self.norm.bias, self._epsilon)
        return F.dropout(x_TD, self.dropout) if self.training else x_TD


class SerialLayer(EncoderLayer):
    """EncoderLayer whose heads draw the dropout of R tensor parallel processes; with `sequence` its tokens, too."""

    def __init__(self, whole: EncoderLayer, ranks: int, sequence: bool):
        nn.Layer.__init__(self)  # with the parameters of `whole`
        for name, part in whole._sub_layers.items():
            setattr(self, name, part)
        self.dropout, self.attention_dropout = whole.dropout, whole.attention_dropout
        self._settings, self._ranks, self._sequence = whole._settings, ranks, sequence

    def forward(self, x_TD: Tensor, layout: Layout, rows: np.ndarray | None = None, mask: Mask | None = None) -> Tensor:
        """As EncoderLayer's, but returns all outputs even where only `rows` are needed."""
        w, s, R = self.weights(), self._settings, self._ranks
        dropout = self.attention_dropout if self.training else 0.0
        products = (linear(x_TD, w.q, w.q_bias), linear(x_TD, w.k, w.k_bias), linear(x_TD, w.v, w.v_bias))
        q_R, k_R, v_R = (paddle.split(product, R, axis=1) for product in products)

        def attended(rank: int) -> Tensor:
            return attention(q_R[rank], k_R[rank], v_R[rank], layout, s.heads // R, dropout, mask=mask)

        mixed_TD = paddle.concat(_each_rank(attended, R, bool(dropout)), axis=1)
        x_TD = self._norm(x_TD, linear(mixed_TD, w.out, w.out_bias), w.gain1, w.offset1)
        inner_TF = linear(x_TD, w.inner, w.inner_bias, s.activation)
        return self._norm(x_TD, linear(inner_TF, w.outer, w.outer_bias), w.gain2, w.offset2)

    def _norm(self, residual_TD: Tensor, x_TD: Tensor, gain_D: Tensor, offset_D: Tensor) -> Tensor:
        dropout, epsilon, T = self.dropout if self.training else 0.0, self._settings.epsilon, x_TD.shape[0]
        if not (self._sequence and dropout):
            return add_norm(residual_TD, x_TD, gain_D, offset_D, epsilon, dropout)
        missing = -T % self._ranks  # every process has as many rows
        zeros = paddle.zeros([missing, x_TD.shape[1]], x_TD.dtype)
        residuals, parts = (
            paddle.split(paddle.concat([each, zeros]) if missing else each, self._ranks) for each in (residual_TD, x_TD)
        )

        def normed(rank: int) -> Tensor:
            return add_norm(residuals[rank], parts[rank], gain_D, offset_D, epsilon, dropout)

        return paddle.concat(_each_rank(normed, self._ranks, True))[:T]


def _each_rank(compute: Callable[[int], Tensor], ranks: int, drops: bool) -> list[Tensor]:
    """Return what each of the processes computes, with the random state of its own if it `drops` something."""
    if not drops:
        return [compute(rank) for rank in range(ranks)]
    shared = int(paddle.randint(0, 2**31 - 1, [1]).item())
    state, outputs = paddle.get_rng_state(), []
    for rank in range(ranks):
        paddle.seed(seeded_rng.key(shared, rank) % 2**31)
        outputs.append(compute(rank))
    paddle.set_rng_state(state)
    return outputs

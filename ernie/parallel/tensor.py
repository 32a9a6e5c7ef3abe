"""Tensor parallelism: every process has a part of each layer's heads and inner width, and of the vocabulary.

Shoeybi et al. (2019, arXiv 1909.08053), section 3, with fleet's own layers.  They are sliced from a full model that
each process initializes identically, so that training starts from the same weights as on one process; parameters keep
their names.

Sequence parallelism (Korthikanti et al., 2022, arXiv 2205.05198, section 4.2.2) also splits the tokens between the
matrix products, for less memory at the same communication.

Legend: T packed tokens, t of them in one process, D width, E a part of another width, P masked positions, V vocabulary,
R processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor, nn
from paddle.distributed.fleet.layers.mpu import mp_ops
from paddle.distributed.fleet.layers.mpu.mp_layers import (
    ColumnParallelLinear,
    ParallelCrossEntropy,
    RowParallelLinear,
    VocabParallelEmbedding,
)
from paddle.distributed.fleet.layers.mpu.random import MODEL_PARALLEL_RNG, get_rng_state_tracker
from paddle.distributed.fleet.utils.sequence_parallel_utils import (
    AllGatherOp,
    GatherOp,
    ReduceScatterOp,
    ScatterOp,
    mark_as_sequence_parallel_parameter,
)

from ernie.data import seeded_rng
from ernie.data.batch import Layout
from ernie.kernels.attention import attention
from ernie.kernels.layer_norm import layer_norm
from ernie.kernels.linear import linear
from ernie.kernels.mask import Mask
from ernie.kernels.norm import add_norm
from ernie.kernels.upload import on_device
from ernie.kernels.vocabulary import sampled_classes, vocabulary_logits
from ernie.model.embeddings import TextEmbedding
from ernie.model.encoder import EncoderLayer
from ernie.model.heads import MaskedTokenHead
from ernie.model.losses import Loss
from ernie.model.translation import TranslationHead
from ernie.parallel.tensor_shard import local_part


def split(model: nn.Layer, group: Any, sequence: bool = False) -> None:
    """Replace the layers of a model by this process's parts of them, in place.

    With `sequence` the tokens between the layers' matrix products are split too.
    """
    tracker = get_rng_state_tracker()
    if MODEL_PARALLEL_RNG not in tracker.states_:
        tracker.add(MODEL_PARALLEL_RNG, 1 + group.rank)  # for fleet's initial weights, which are replaced
    matrices: dict[int, Tensor] = {}  # full embedding matrix (by id) -> this process's part

    def embedding(layer: TextEmbedding) -> SplitEmbedding:
        part = SplitEmbedding(layer, group, sequence)
        matrices[id(layer.token.weight)] = part.token.weight
        return part

    def encoder_layer(layer: EncoderLayer) -> SplitLayer:
        return SplitLayer(layer, group, TokenSharding(group.nranks) if sequence else None)

    replace(model, TextEmbedding, embedding)
    replace(model, EncoderLayer, encoder_layer)
    replace(model, MaskedTokenHead, lambda head: SplitMaskedHead(head, matrices[id(head.embedding_matrix)], group))
    for layer in model.sublayers():
        if isinstance(layer, TranslationHead):
            layer.tie_embedding(matrices[id(layer.embedding_matrix)], lambda part: _full_embedding(part, group))
    if sequence:
        *_, last = (layer for layer in model.sublayers() if isinstance(layer, SplitLayer))
        last.gathers = True


def replace(model: nn.Layer, kind: type[nn.Layer], make: Callable[[Any], nn.Layer]) -> None:
    """Replace every sublayer of exactly type `kind` by `make(sublayer)`."""
    for parent in model.sublayers(include_self=True):
        for name, child in list(parent._sub_layers.items()):
            if type(child) is kind:
                parent._sub_layers[name] = make(child)


class TokenSharding:
    """Splits tokens over R processes, t = T / R rounded up for each, padded with zero rows."""

    def __init__(self, ranks: int):
        self._ranks = ranks

    def rows(self, tokens: int) -> int:
        """Return the number of rows of each process for `tokens` tokens."""
        return -(-tokens // self._ranks)

    def scatter(self, x_TD: Tensor) -> Tensor:
        """Return this process's part of rows that all of them have, (T, D) -> (t, D)."""
        return ScatterOp.apply(self._pad(x_TD))

    def gather(self, x_tD: Tensor, tokens: int) -> Tensor:
        """Gather all parts, for a computation that every process repeats, (t, D) -> (T, D)."""
        return GatherOp.apply(x_tD)[:tokens]

    def all_gather(self, x_tD: Tensor, tokens: int) -> Tensor:
        """Gather all parts, for a matrix product that is split over the processes, (t, D) -> (T, D)."""
        return AllGatherOp.apply(x_tD)[:tokens]

    def reduce_scatter(self, x_TD: Tensor) -> Tensor:
        """Return this process's part of the sum over all processes, (T, D) -> (t, D)."""
        return ReduceScatterOp.apply(self._pad(x_TD))

    def _pad(self, x_TD: Tensor) -> Tensor:
        missing = -x_TD.shape[0] % self._ranks
        return paddle.concat([x_TD, paddle.zeros([missing, x_TD.shape[1]], x_TD.dtype)]) if missing else x_TD


def _set_part(to: Tensor, whole: Tensor, group: Any) -> None:
    """Set a split parameter to its part of the full one."""
    to.set_value(local_part(whole.numpy(), to, group.rank))
    to.stop_gradient = whole.stop_gradient


def _full_embedding(part_ED: Tensor, group: Any) -> Tensor:
    """Gather a split embedding matrix, (V, D), for a computation that every process repeats."""
    return mp_ops._c_concat(part_ED.t(), group=group).t()


def _columns(whole: nn.Linear, group: Any) -> ColumnParallelLinear:
    part = ColumnParallelLinear(*whole.weight.shape, has_bias=True, gather_output=False, mp_group=group)
    _set_part(part.weight, whole.weight, group)
    _set_part(part.bias, whole.bias, group)
    return part


def _rows(whole: nn.Linear, group: Any) -> RowParallelLinear:
    part = RowParallelLinear(*whole.weight.shape, has_bias=True, input_is_parallel=True, mp_group=group)
    _set_part(part.weight, whole.weight, group)
    part.bias.set_value(whole.bias)
    part.bias.stop_gradient = whole.bias.stop_gradient
    return part


@contextmanager
def _local_rng(group: Any) -> Iterator[None]:
    """Use a random state that differs between processes, for dropout of each one's own heads or tokens."""
    shared = int(paddle.randint(0, 2**31 - 1, [1]).item())  # the same on all processes
    with get_rng_state_tracker().rng_state(MODEL_PARALLEL_RNG):
        paddle.seed(seeded_rng.key(shared, group.rank) % 2**31)
        yield


class SplitLayer(nn.Layer):
    """EncoderLayer with a part of the heads and of the inner width, and with `tokens` also a part of the tokens.

    The parameters are those of fleet's layers; the matrix products use our kernels, in the active precision.
    """

    def __init__(self, whole: EncoderLayer, group: Any, tokens: TokenSharding | None):
        super().__init__()
        self.q, self.k, self.v = (_columns(part, group) for part in (whole.q, whole.k, whole.v))
        self.attention_out = _rows(whole.attention_out, group)
        self.attention_norm = whole.attention_norm
        self.inner = _columns(whole.inner, group)
        self.outer = _rows(whole.outer, group)
        self.output_norm = whole.output_norm
        self.dropout, self.attention_dropout = whole.dropout, whole.attention_dropout
        self.gathers = False  # whether it returns all tokens, as the last layer does
        self._settings, self._group, self._tokens = whole._settings, group, tokens
        self._no_bias = paddle.zeros_like(whole.output_norm.bias)
        if tokens is not None:
            for parameter in (self.attention_out.bias, self.outer.bias):
                mark_as_sequence_parallel_parameter(parameter)
            for norm in (self.attention_norm, self.output_norm):
                mark_as_sequence_parallel_parameter(norm.weight)
                mark_as_sequence_parallel_parameter(norm.bias)

    def forward(self, x_TD: Tensor, layout: Layout, rows: np.ndarray | None = None, mask: Mask | None = None) -> Tensor:
        """As EncoderLayer's, but returns all outputs even where only `rows` are needed."""
        settings, T = self._settings, layout.tokens
        attention_dropout = self.attention_dropout if self.training else 0.0
        heads = settings.heads // self._group.nranks
        full_TD = self._all(x_TD, T)
        q, k, v = (linear(full_TD, part.weight, part.bias) for part in (self.q, self.k, self.v))
        with _local_rng(self._group) if attention_dropout else nullcontext():
            mixed = attention(q, k, v, layout, heads, attention_dropout, mask=mask)
        x_TD = self._norm(self.attention_norm, x_TD, self._sum(mixed, self.attention_out))
        inner = linear(self._all(x_TD, T), self.inner.weight, self.inner.bias, settings.activation)
        x_TD = self._norm(self.output_norm, x_TD, self._sum(inner, self.outer))
        return self._tokens.gather(x_TD, T) if self._tokens is not None and self.gathers else x_TD

    def rows(self, layout: Layout) -> int:
        """As EncoderLayer's."""
        return layout.tokens if self._tokens is None else self._tokens.rows(layout.tokens)

    def _all(self, x_TD: Tensor, tokens: int) -> Tensor:
        """Return the input of a column-parallel product."""
        if self._tokens is not None:
            return self._tokens.all_gather(x_TD, tokens)
        return mp_ops._c_identity(x_TD, group=self._group)

    def _sum(self, x_TE: Tensor, part: RowParallelLinear) -> Tensor:
        """Return a row-parallel product, summed over the processes, plus the bias."""
        own_TD = linear(x_TE, part.weight, self._no_bias)
        if self._tokens is not None:
            return self._tokens.reduce_scatter(own_TD) + part.bias
        return (
            mp_ops._mp_allreduce(own_TD, group=self._group, use_calc_stream=True, use_model_parallel=True) + part.bias
        )

    def _norm(self, norm: nn.LayerNorm, residual_TD: Tensor, x_TD: Tensor) -> Tensor:
        dropout = self.dropout if self.training else 0.0
        with _local_rng(self._group) if dropout and self._tokens is not None else nullcontext():
            return add_norm(residual_TD, x_TD, norm.weight, norm.bias, self._settings.epsilon, dropout)


class SplitEmbedding(nn.Layer):
    """TextEmbedding with a part of the vocabulary; with `sequence` it returns a part of the tokens."""

    def __init__(self, whole: TextEmbedding, group: Any, sequence: bool):
        super().__init__()
        self.token = VocabParallelEmbedding(*whole.token.weight.shape, mp_group=group)
        _set_part(self.token.weight, whole.token.weight, group)
        self.position, self.segment, self.task, self.norm = whole.position, whole.segment, whole.task, whole.norm
        self.dropout, self._epsilon = whole.dropout, whole._epsilon
        self._tokens = TokenSharding(group.nranks) if sequence else None

    def forward(
        self, ids_T: np.ndarray, segments_T: np.ndarray, positions_T: np.ndarray, tasks_T: np.ndarray | int
    ) -> Tensor:
        """As TextEmbedding's."""
        x_TD = self.token(on_device(ids_T))
        x_TD = x_TD + self.position(on_device(positions_T)) + self.segment(on_device(segments_T))
        if self.task is not None:
            x_TD = x_TD + self.task(paddle.to_tensor(np.broadcast_to(tasks_T, ids_T.shape).copy()))
        x_TD = layer_norm(x_TD, self.norm.weight, self.norm.bias, self._epsilon)
        x_TD = F.dropout(x_TD, self.dropout) if self.training else x_TD
        return x_TD if self._tokens is None else self._tokens.scatter(x_TD)


class SplitMaskedHead(nn.Layer):
    """MaskedTokenHead that computes the logits of a part of the vocabulary."""

    def __init__(self, whole: MaskedTokenHead, matrix: Tensor, group: Any):
        super().__init__()
        self.transform, self.norm, self.task_id = whole.transform, whole.norm, whole.task_id
        self.bias = self.create_parameter([whole.bias.shape[0] // group.nranks], is_bias=True)
        self.bias.is_distributed, self.bias.split_axis = True, 0
        _set_part(self.bias, whole.bias, group)
        self._activation, self._matrix, self._group = whole._activation, (matrix,), group
        self._cross_entropy = ParallelCrossEntropy(mp_group=group)

    def forward(self, hidden_TD: Tensor, positions: np.ndarray) -> Tensor:
        """Return the logits of the full vocabulary, (P, V)."""
        return mp_ops._c_concat(self._logits(hidden_TD, positions), group=self._group)

    def loss(self, hidden_TD: Tensor, positions: np.ndarray, labels: np.ndarray) -> Loss:
        """As MaskedTokenHead's."""
        loss_P1 = self._cross_entropy(self._logits(hidden_TD, positions), on_device(labels).unsqueeze(-1))
        return Loss(loss_P1.sum(), len(labels), None, labels)

    def loss_and_samples(
        self, hidden_TD: Tensor, positions: np.ndarray, labels: np.ndarray, draws: np.ndarray
    ) -> tuple[Tensor, np.ndarray]:
        """As MaskedTokenHead's."""
        logits = self._logits(hidden_TD, positions)
        with paddle.no_grad():
            drawn = sampled_classes(mp_ops._c_concat(logits, group=self._group), draws)
        return self._cross_entropy(logits, on_device(labels).unsqueeze(-1)).sum(), drawn

    def _logits(self, hidden_TD: Tensor, positions: np.ndarray) -> Tensor:
        x_PD = paddle.gather(hidden_TD, on_device(positions))
        x_PD = self.norm(linear(x_PD, self.transform.weight, self.transform.bias, self._activation))
        x_PD = mp_ops._c_identity(x_PD, group=self._group)
        return vocabulary_logits(x_PD, self._matrix[0], self.bias)

"""A recurrent encoder of speech: Amodei et al., 2016, "Deep Speech 2" (arXiv 1512.02595), sections 3.1 to 3.4.

Legend: T packed vectors, N sequences, D width, G three times the units of a layer.
"""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor, nn

from ernie.audio.recurrent_config import RecurrentConfig
from ernie.data.batch import Layout
from ernie.kernels.gru import gated_recurrent
from ernie.kernels.linear import linear
from ernie.kernels.mask import Mask
from ernie.kernels.precision import is_batch_invariant, precision
from ernie.model.cache import KeyValueCache


class RecurrentEncoder(nn.Layer):
    """A stack of gated recurrent layers, (T, D) -> (T, D), bidirectional for whole recordings.

    For streaming in chunks of `chunk` vectors the layers are forward only, and a row convolution gives each vector a
    look-ahead of `ahead` vectors within its own chunk.
    """

    def __init__(self, width: int, config: RecurrentConfig, chunk: int | None):
        super().__init__()
        directions = 1 if chunk else 2
        widths = [width, *[directions * config.units] * (config.layers - 1)]
        self.layers = nn.LayerList([_Layer(own, config.units, directions) for own in widths])
        self.ahead = self.create_parameter([config.ahead + 1, config.units]) if chunk else None
        self.out = nn.Linear(directions * config.units, width)
        self.dropout = nn.Dropout(0.1)
        self._chunk = chunk

    def forward(self, x_TD: Tensor, layout: Layout, mask: Mask | None = None) -> Tensor:
        """Encode whole recordings, or all of their chunks at once, as in training; a state takes the `mask`'s place."""
        return self.forward_cached(x_TD, layout, KeyValueCache.empty(layout.sequences))[0]

    def forward_cached(self, x_TD: Tensor, layout: Layout, cache: KeyValueCache) -> tuple[Tensor, KeyValueCache]:
        """Encode the next chunks of each sequence, given the cached last states; return the output and new cache."""
        known = cache.layout.lengths > 0
        states, cached = [], cache.layers
        for number, layer in enumerate(self.layers):
            x_TD = self.dropout(x_TD)
            initial = cached[number][0] if cached else paddle.zeros([0, layer.units])
            initial_NH = _expand(initial, known)
            x_TD = layer(x_TD, layout, initial_NH)
            states.append(_last(x_TD[:, : layer.units], layout, initial_NH))
        if self.ahead is not None:
            x_TD = self._look_ahead(x_TD, layout)
        has_state = known | (layout.lengths > 0)
        final_states = [paddle.gather(state, paddle.to_tensor(np.flatnonzero(has_state))) for state in states]
        new_cache = KeyValueCache(
            Layout.of_lengths(has_state.astype(np.int64)), tuple((state, state) for state in final_states)
        )
        return linear(x_TD, self.out.weight, self.out.bias), new_cache

    def forward_chunks(
        self, x_TD: Tensor, layout: Layout, cache: KeyValueCache, chunk: int, before: int
    ) -> tuple[Tensor, KeyValueCache]:
        """Encode the next chunks, as `Encoder.forward_chunks` does; a state takes the place of the tokens `before`."""
        return self.forward_cached(x_TD, layout, cache)

    def _look_ahead(self, x_TH: Tensor, layout: Layout) -> Tensor:
        """Apply the row convolution (section 3.4): depthwise, over the vectors ahead in the same chunk."""
        assert self._chunk is not None and self.ahead is not None
        padded = paddle.concat([x_TH, paddle.zeros([1, x_TH.shape[1]])])
        position = layout.positions
        # The end of the chunk, or of the recording within it.
        end = np.minimum((position // self._chunk + 1) * self._chunk, np.repeat(layout.lengths, layout.lengths))
        rows, total_TH = np.arange(layout.tokens), None
        for step in range(self.ahead.shape[0]):
            index = np.where(position + step < end, rows + step, layout.tokens)
            ahead_TH = paddle.gather(padded, paddle.to_tensor(index))
            total_TH = ahead_TH * self.ahead[step] if total_TH is None else total_TH + ahead_TH * self.ahead[step]
        assert total_TH is not None
        return F.relu(total_TH)


class _BatchNorm(nn.BatchNorm1D):
    """Paddle's, without its warning in training that it tracks mean and variance."""

    def forward(self, x_TG: Tensor) -> Tensor:
        statistics = self._mean, self._variance, self.weight, self.bias
        return F.batch_norm(x_TG, *statistics, training=self.training, momentum=self._momentum, epsilon=self._epsilon)


class _Layer(nn.Layer):
    """Gated units in one or both directions, with sequence-wise batch normalization (section 3.2).

    Only the input projection is normalized, not the recurrent one.  In training, a batch that is computed in several
    micro-batches is normalized one micro-batch at a time.
    """

    def __init__(self, width: int, units: int, directions: int):
        super().__init__()
        self.units = units
        self.inputs = nn.LayerList([nn.Linear(width, 3 * units, bias_attr=False) for _ in range(directions)])
        self.norms = nn.LayerList([_BatchNorm(3 * units) for _ in range(directions)])
        self.states = nn.LayerList([nn.Linear(units, 3 * units) for _ in range(directions)])

    def forward(self, x_TD: Tensor, layout: Layout, initial_NH: Tensor) -> Tensor:
        outputs = []
        for number, (inputs, norm, states) in enumerate(zip(self.inputs, self.norms, self.states, strict=True)):
            x_TG = norm(_project(x_TD, inputs.weight))
            initial = None if number else initial_NH  # the backward direction has no state before the chunk
            weights = states.weight, states.bias
            outputs.append(gated_recurrent(x_TG, layout, *weights, initial, backward=number == 1))
        return outputs[0] if len(outputs) == 1 else paddle.concat(outputs, axis=-1)


def _project(x_TD: Tensor, weight_DG: Tensor) -> Tensor:
    if not is_batch_invariant():
        return paddle.matmul(x_TD, weight_DG)
    with precision("fp32"):
        return linear(x_TD, weight_DG, paddle.zeros([weight_DG.shape[1]]))


def _expand(rows: Tensor, known: np.ndarray) -> Tensor:
    """Expand the rows of the `known` sequences to all sequences, with zeros for the others, (N, H)."""
    padded = paddle.concat([rows, paddle.zeros([1, rows.shape[1]])])
    where = np.where(known, np.cumsum(known) - 1, rows.shape[0])
    return paddle.gather(padded, paddle.to_tensor(where))


def _last(x_TH: Tensor, layout: Layout, initial_NH: Tensor) -> Tensor:
    """Return each sequence's last row, or its row of `initial_NH` where it is empty."""
    padded = paddle.concat([x_TH, initial_NH])
    empty = layout.tokens + np.arange(layout.sequences)
    return paddle.gather(padded, paddle.to_tensor(np.where(layout.lengths > 0, layout.offsets[1:] - 1, empty)))

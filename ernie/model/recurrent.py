"""A recurrent encoder of speech: Amodei et al., 2016, "Deep Speech 2" (arXiv 1512.02595), sections 3.1 to 3.4.

Legend: T packed vectors, N sequences, D width, G three times the units of a layer.
"""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor, nn

from ernie.audio.recurrent import RecurrentConfig
from ernie.data.batch import Layout
from ernie.kernels.linear import linear
from ernie.kernels.recurrent import gated_recurrent
from ernie.model.memory import Memory


class RecurrentEncoder(nn.Layer):
    """Layers of gated units, (T, D) -> (T, D): in both directions where sounds are heard whole.

    With a `chunk` they go forward only, and a row convolution lets each vector look at those `ahead` of it in its own
    chunk of so many.
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

    def forward(self, x_TD: Tensor, layout: Layout) -> Tensor:
        """Whole sounds, or all of their chunks at once, as in learning."""
        return self.go_on(x_TD, layout, Memory.empty(layout.sequences))[0]

    def go_on(self, x_TD: Tensor, layout: Layout, before: Memory, together: bool = True) -> tuple[Tensor, Memory]:
        """A chunk that follows those `before`, whose last states are remembered; the memory after it."""
        known = before.layout.lengths > 0
        states = []
        for number, layer in enumerate(self.layers):
            x_TD = self.dropout(x_TD)
            begin = before.layers[number][0] if before.layers else paddle.zeros([0, layer.units])
            begin_NH = _spread(begin, known)
            x_TD = layer(x_TD, layout, begin_NH)
            states.append(_last(x_TD[:, : layer.units], layout, begin_NH))
        if self.ahead is not None:
            x_TD = self._look_ahead(x_TD, layout)
        heard = known | (layout.lengths > 0)
        kept = [paddle.gather(state, paddle.to_tensor(np.flatnonzero(heard))) for state in states]
        memory = Memory(Layout.of_lengths(heard.astype(np.int64)), tuple((state, state) for state in kept))
        return linear(x_TD, self.out.weight, self.out.bias), memory

    def _look_ahead(self, x_TH: Tensor, layout: Layout) -> Tensor:
        """A row convolution (section 3.4): of each unit by itself, over the vectors ahead in the same chunk."""
        assert self._chunk is not None and self.ahead is not None
        padded = paddle.concat([x_TH, paddle.zeros([1, x_TH.shape[1]])])
        place = layout.positions
        # The end of the chunk, or of the sound within it.
        end = np.minimum((place // self._chunk + 1) * self._chunk, np.repeat(layout.lengths, layout.lengths))
        rows, total = np.arange(layout.tokens), None
        for step in range(self.ahead.shape[0]):
            seen = paddle.gather(padded, paddle.to_tensor(np.where(place + step < end, rows + step, layout.tokens)))
            total = seen * self.ahead[step] if total is None else total + seen * self.ahead[step]
        assert total is not None
        return F.relu(total)


class _Layer(nn.Layer):
    """Gated units in one direction or both; what they are given is normalized over all vectors computed at a time.

    Sequence-wise batch normalization (section 3.2): of the inputs' part only, not of what the states add.  In learning
    a batch that is computed in several parts is normalized part by part.
    """

    def __init__(self, width: int, units: int, directions: int):
        super().__init__()
        self.units = units
        self.inputs = nn.LayerList([nn.Linear(width, 3 * units, bias_attr=False) for _ in range(directions)])
        self.norms = nn.LayerList([nn.BatchNorm1D(3 * units) for _ in range(directions)])
        self.states = nn.LayerList([nn.Linear(units, 3 * units) for _ in range(directions)])

    def forward(self, x_TD: Tensor, layout: Layout, begin_NH: Tensor) -> Tensor:
        found = []
        for number, (inputs, norm, states) in enumerate(zip(self.inputs, self.norms, self.states, strict=True)):
            x_TG = norm(paddle.matmul(x_TD, inputs.weight))
            begin = None if number else begin_NH  # backward there is nothing before
            weights = states.weight, states.bias
            found.append(gated_recurrent(x_TG, layout, *weights, begin, backward=number == 1))
        return found[0] if len(found) == 1 else paddle.concat(found, axis=-1)


def _spread(rows: Tensor, known: np.ndarray) -> Tensor:
    """The rows of the sequences that have one, and zeros for the others, (N, H)."""
    padded = paddle.concat([rows, paddle.zeros([1, rows.shape[1]])])
    where = np.where(known, np.cumsum(known) - 1, rows.shape[0])
    return paddle.gather(padded, paddle.to_tensor(where))


def _last(x_TH: Tensor, layout: Layout, begin_NH: Tensor) -> Tensor:
    """Each sequence's last row; what was before it where it has none."""
    padded = paddle.concat([x_TH, begin_NH])
    empty = layout.tokens + np.arange(layout.sequences)
    return paddle.gather(padded, paddle.to_tensor(np.where(layout.lengths > 0, layout.offsets[1:] - 1, empty)))

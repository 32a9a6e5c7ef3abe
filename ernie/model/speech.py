"""From frames of sound to the encoder's vectors, and from these to a transcript: CTC.

Legend: F frames, M features of a frame, T vectors of the encoder, P vectors of pieces, N sequences, D width,
V vocabulary, L labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor, nn

from ernie.audio.lengths import STEPS, needed
from ernie.data.batch import Frames, Layout
from ernie.kernels.linear import linear
from ernie.kernels.norm import layer_norm
from ernie.model.abstraction import Abstraction
from ernie.model.losses import Loss
from ernie.model.recurrent import RecurrentEncoder
from ernie.model.translation import TranslationHead

if TYPE_CHECKING:
    from ernie.model.ernie import ErnieModel

_WIDTH = 3  # frames of a window of either convolution
_PARTS = 3  # before a piece, within and behind it


class SpeechFrontend(nn.Layer):
    """Two convolutions over time that leave a quarter of the frames, with the encoder's positions, (F, M) -> (T, D).

    The vector t looks at the frames 4t - 3 to 4t + 3.  Sequences do not touch each other: outside of one there is
    silence, which is zero.  With a `period` positions begin anew after so many vectors: where attention sees fewer than
    that, none are alike, and sounds may be longer than any that was learnt, or than the encoder has positions.
    """

    def __init__(self, model: ErnieModel, features: int, period: int | None = None):
        super().__init__()
        D = model.config.hidden_size
        self.first, self.second = nn.Linear(_WIDTH * features, D), nn.Linear(_WIDTH * D, D)
        self.norm = nn.LayerNorm(D, epsilon=model.config.layer_norm_epsilon)
        self.dropout, self._epsilon = model.config.dropout, model.config.layer_norm_epsilon
        self.period = period
        # In a tuple: the encoder's own positions, not to be registered a second time under this layer.
        self._positions = (model.embedding.position.weight,)

    def forward(self, frames: Frames, before: np.ndarray | int = 0) -> tuple[Tensor, Layout]:
        """The vectors and their layout; `before` (N,) are how many vectors of each sequence came earlier."""
        x_TD, layout = paddle.to_tensor(frames.features), frames.layout
        for convolution, step in zip((self.first, self.second), STEPS, strict=True):
            x_TD, layout = _convolved(x_TD, layout, convolution, step)
        places = layout.positions + np.repeat(np.broadcast_to(before, layout.sequences), layout.lengths)
        if self.period is not None:
            places = places % self.period
        x_TD = x_TD + F.embedding(paddle.to_tensor(places), self._positions[0])
        x_TD = layer_norm(x_TD, self.norm.weight, self.norm.bias, self._epsilon)
        return (F.dropout(x_TD, self.dropout) if self.training else x_TD), layout


def _convolved(x_FM: Tensor, layout: Layout, convolution: nn.Linear, step: int) -> tuple[Tensor, Layout]:
    """Windows of three frames around every `step`-th, each through the same layer and a ReLU."""
    found = Layout.of_lengths(-(-layout.lengths // step))
    middle_T = np.repeat(layout.starts, found.lengths) + step * found.positions
    windows_TW = middle_T[:, None] + np.arange(-(_WIDTH // 2), _WIDTH // 2 + 1)
    sequence_T = np.repeat(np.arange(found.sequences), found.lengths)
    inside = (windows_TW >= layout.starts[sequence_T, None]) & (windows_TW < layout.offsets[sequence_T + 1, None])
    windows_TW = np.where(inside, windows_TW, layout.tokens)  # a row of zeros behind all others
    padded = paddle.concat([x_FM, paddle.zeros([1, x_FM.shape[1]], x_FM.dtype)])
    joined = paddle.gather(padded, paddle.to_tensor(windows_TW.ravel())).reshape([found.tokens, -1])
    return F.relu(linear(joined, convolution.weight, convolution.bias)), found


class SpeechHead(nn.Layer):
    """What hears for an encoder, and what tells the tokens of its vectors: a token, or `blank`, for each.

    Graves et al., 2006, "Connectionist temporal classification".  `period` is that of the front end.  With `layers`
    there is a decoder of so many, the `writer`, which reads the pieces that CTC cuts (see `ernie.decode.pieces`) and
    remembers `history` tokens of what it has written; pieces are encoded with the `abstractions` of so many tokens
    before them, where there are any.  `recurrent` takes the place of the encoder's layers.
    """

    def __init__(
        self,
        model: ErnieModel,
        features: int,
        blank: int,
        period: int | None = None,
        layers: int = 0,
        history: int | None = None,
        recurrent: RecurrentEncoder | None = None,
        abstractions: int = 0,
    ):
        super().__init__()
        self.frontend = SpeechFrontend(model, features, period)
        self.out = nn.Linear(model.config.hidden_size, model.config.vocab_size)
        self.blank = blank
        self.writer = TranslationHead(model, layers, history) if layers else None
        self.parts = nn.Embedding(_PARTS, model.config.hidden_size) if layers and history is not None else None
        self.recurrent = recurrent
        self.abstraction = Abstraction(model.config, abstractions) if abstractions else None

    def forward(self, hidden_TD: Tensor) -> Tensor:
        """The logits of each vector, (T, V)."""
        return linear(hidden_TD, self.out.weight, self.out.bias).astype("float32")

    def seen(self, pieces_PD: Tensor, parts: np.ndarray) -> Tensor:
        """The vectors of pieces as the writer sees them, who is told where in its piece each lies (`Window.parts`).

        Without that, a token said twice and one that CTC told twice look alike: vectors of the same token on either
        side of the cut.
        """
        assert self.parts is not None
        return pieces_PD + F.embedding(paddle.to_tensor(parts), self.parts.weight)


def ctc_loss(logits_TV: Tensor, layout: Layout, labels: np.ndarray, label_layout: Layout, blank: int) -> Loss:
    """-log of the probability of the labels (L,), summed over all ways in which vectors may tell them.

    The sum over the sequences and the number of all labels.  Each sequence needs at least `needed` vectors.  By
    warp-ctc, which comes with Paddle.
    """
    short = layout.lengths < [needed(own) for own in np.split(labels, label_layout.offsets[1:-1])]
    if short.any():
        raise ValueError(f"sequence {int(short.argmax())} has fewer vectors than its labels need")
    silent = label_layout.lengths == 0
    total = _silence(logits_TV, layout, silent, blank)
    if not silent.all():
        total = total + _warp_ctc(logits_TV, layout, labels, label_layout, blank, np.flatnonzero(~silent))
    return Loss(total, len(labels), None, labels)


def _silence(logits_TV: Tensor, layout: Layout, silent: np.ndarray, blank: int) -> Tensor:
    """The loss of the sequences without a label: there is one way to tell them, and Paddle divides by their labels."""
    rows = np.flatnonzero(np.repeat(silent, layout.lengths))
    if not len(rows):
        return paddle.zeros([])
    chosen = paddle.gather(logits_TV, paddle.to_tensor(rows))
    return F.cross_entropy(chosen, paddle.full([len(rows)], blank, "int64"), reduction="sum")


def _warp_ctc(
    logits_TV: Tensor, layout: Layout, labels: np.ndarray, label_layout: Layout, blank: int, chosen: np.ndarray
) -> Tensor:
    """The loss of the `chosen` sequences, each of which has labels."""
    lengths, counts = layout.lengths[chosen], label_layout.lengths[chosen]
    time = np.arange(lengths.max())[:, None]
    rows = np.where(time < lengths, layout.starts[chosen] + time, layout.tokens)
    padded = paddle.concat([logits_TV, paddle.zeros([1, logits_TV.shape[1]], logits_TV.dtype)])
    logits = paddle.gather(padded, paddle.to_tensor(rows.ravel())).reshape([*rows.shape, -1])
    targets = np.zeros((len(chosen), counts.max()), np.int32)
    for row, n in zip(targets, chosen, strict=True):
        own = labels[label_layout.offsets[n] : label_layout.offsets[n + 1]]
        row[: len(own)] = own
    sizes = (paddle.to_tensor(part.astype(np.int64)) for part in (lengths, counts))
    return F.ctc_loss(logits, paddle.to_tensor(targets), *sizes, blank=blank, reduction="none").sum()

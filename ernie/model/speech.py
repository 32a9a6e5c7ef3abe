"""Speech recognition: a convolutional front end for the encoder, a CTC head, and the CTC loss.

Legend: F frames, M features of a frame, T vectors of the encoder, P vectors of segments, N sequences, D width,
V vocabulary, L labels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor, nn

from ernie.audio.lengths import STEPS, min_vectors
from ernie.data.batch import Frames, Layout
from ernie.kernels.layer_norm import layer_norm
from ernie.kernels.linear import linear
from ernie.kernels.precision import in_float32
from ernie.kernels.upload import on_device
from ernie.model.convolution import Convolution, ConvolvedEncoder
from ernie.model.encoder import Encoder
from ernie.model.losses import Loss
from ernie.model.recurrent_encoder import RecurrentEncoder
from ernie.model.segment_context import Abstraction
from ernie.model.translation import TranslationHead

if TYPE_CHECKING:
    from ernie.model.ernie import ErnieModel

_WIDTH = 3  # kernel size of both convolutions, in frames
_PARTS = 3  # before a segment, within and after it


class SpeechFrontend(nn.Layer):
    """Two convolutions over time that subsample frames by four, plus the encoder's positions, (F, M) -> (T, D).

    The receptive field of vector t is the frames 4t - 3 to 4t + 3, zero-padded at the ends of each sequence.  With a
    `period` positions wrap around after that many vectors.  As long as attention spans fewer vectors, no two of them
    share a position.  Recordings may then be longer than any in training, or than the encoder has positions.
    """

    def __init__(self, model: ErnieModel, features: int, period: int | None = None):
        super().__init__()
        D = model.config.hidden_size
        self.first, self.second = nn.Linear(_WIDTH * features, D), nn.Linear(_WIDTH * D, D)
        self.norm = nn.LayerNorm(D, epsilon=model.config.layer_norm_epsilon)
        self.dropout, self._epsilon = model.config.dropout, model.config.layer_norm_epsilon
        self.period = period
        # In a tuple: the encoder's own parameter, not to be registered again under this layer.
        self._positions = (model.embedding.position.weight,)

    def forward(self, frames: Frames, before: np.ndarray | int = 0) -> tuple[Tensor, Layout]:
        """Return the vectors and their layout; `before` (N,) is the number of earlier vectors of each sequence."""
        x_TD, layout = on_device(frames.features), frames.layout
        for convolution, step in zip((self.first, self.second), STEPS, strict=True):
            x_TD, layout = _convolve(x_TD, layout, convolution, step)
        positions = layout.positions + np.repeat(np.broadcast_to(before, layout.sequences), layout.lengths)
        if self.period is not None:
            positions = positions % self.period
        x_TD = x_TD + F.embedding(paddle.to_tensor(positions), self._positions[0])
        x_TD = layer_norm(x_TD, self.norm.weight, self.norm.bias, self._epsilon)
        return (F.dropout(x_TD, self.dropout) if self.training else x_TD), layout


def _convolve(x_FM: Tensor, layout: Layout, convolution: nn.Linear, step: int) -> tuple[Tensor, Layout]:
    """Apply a strided convolution of kernel size three and a ReLU."""
    out_layout = Layout.of_lengths(-(-layout.lengths // step))
    center_T = np.repeat(layout.starts, out_layout.lengths) + step * out_layout.positions
    windows_TW = center_T[:, None] + np.arange(-(_WIDTH // 2), _WIDTH // 2 + 1)
    sequence_T = np.repeat(np.arange(out_layout.sequences), out_layout.lengths)
    inside = (windows_TW >= layout.starts[sequence_T, None]) & (windows_TW < layout.offsets[sequence_T + 1, None])
    windows_TW = np.where(inside, windows_TW, layout.tokens)  # the index of the row of zeros appended below
    padded = paddle.concat([x_FM, paddle.zeros([1, x_FM.shape[1]], x_FM.dtype)])
    patches = paddle.gather(padded, paddle.to_tensor(windows_TW.ravel())).reshape([out_layout.tokens, -1])
    return F.relu(linear(patches, convolution.weight, convolution.bias)), out_layout


class SpeechHead(nn.Layer):
    """The speech recognition head: a front end before the encoder, and a CTC classifier of tokens and `blank` after it.

    Graves et al., 2006, "Connectionist temporal classification".  `period` is that of the front end.  `layers` adds an
    attention decoder of that many layers, the `writer`.  With a `history` it reads segments cut by CTC (see
    `ernie.decode.truncated_attention`) and attends to that many of its own tokens.  Segments are encoded with the
    abstractions of the last `abstractions` tokens before them, if any.  `recurrent` replaces the encoder's layers.  A
    `convolution` over so many vectors follows each of them.
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
        convolution: int = 0,
    ):
        super().__init__()
        self.frontend = SpeechFrontend(model, features, period)
        self.out = nn.Linear(model.config.hidden_size, model.config.vocab_size)
        self.blank = blank
        self.writer = TranslationHead(model, layers, history) if layers else None
        self.parts = nn.Embedding(_PARTS, model.config.hidden_size) if layers and history is not None else None
        self.recurrent = recurrent
        self.abstraction = Abstraction(model.config, abstractions) if abstractions else None
        convolved = model.config.layers if convolution else 0
        self.convolutions = nn.LayerList([Convolution(model.config, convolution) for _ in range(convolved)])

    def encoder(self, ernie: ErnieModel) -> Encoder | ConvolvedEncoder | RecurrentEncoder:
        """Return what encodes the vectors of the front end: the encoder of a model, with convolutions, or another."""
        if self.recurrent is not None:
            return self.recurrent
        return ConvolvedEncoder(ernie.encoder, self.convolutions) if len(self.convolutions) else ernie.encoder

    def forward(self, hidden_TD: Tensor) -> Tensor:
        """Return the CTC logits of each vector, (T, V)."""
        return linear(hidden_TD, self.out.weight, self.out.bias).astype("float32")

    def embed_segments(self, segments_PD: Tensor, parts: np.ndarray) -> Tensor:
        """Add embeddings of each vector's part of its segment, before, within or after it (`Window.parts`), (P, D).

        Otherwise a token spoken twice and a token that CTC predicts twice look alike: vectors of the same token on
        either side of the cut.
        """
        assert self.parts is not None
        return segments_PD + F.embedding(paddle.to_tensor(parts), self.parts.weight)


@in_float32
def ctc_loss(logits_TV: Tensor, layout: Layout, labels: np.ndarray, label_layout: Layout, blank: int) -> Loss:
    """CTC loss: -log of the probability of the labels (L,), marginalized over all alignments.

    Summed over the sequences; the count is the number of all labels.  Raises ValueError for a sequence with fewer
    vectors than `min_vectors` of its labels.  Uses warp-ctc, which is included in Paddle.
    """
    short = layout.lengths < [
        min_vectors(sequence_labels) for sequence_labels in np.split(labels, label_layout.offsets[1:-1])
    ]
    if short.any():
        raise ValueError(f"sequence {int(short.argmax())} has fewer vectors than its labels need")
    is_empty = label_layout.lengths == 0
    total = _empty_loss(logits_TV, layout, is_empty, blank)
    if not is_empty.all():
        total = total + _warp_ctc_loss(logits_TV, layout, labels, label_layout, blank, np.flatnonzero(~is_empty))
    return Loss(total, len(labels), None, labels)


def _empty_loss(logits_TV: Tensor, layout: Layout, is_empty: np.ndarray, blank: int) -> Tensor:
    """Loss of sequences without labels: only the all-blank alignment; Paddle's CTC would divide by the label count."""
    rows = np.flatnonzero(np.repeat(is_empty, layout.lengths))
    if not len(rows):
        return paddle.zeros([])
    chosen = paddle.gather(logits_TV, paddle.to_tensor(rows))
    return F.cross_entropy(chosen, paddle.full([len(rows)], blank, "int64"), reduction="sum")


def _warp_ctc_loss(
    logits_TV: Tensor, layout: Layout, labels: np.ndarray, label_layout: Layout, blank: int, chosen: np.ndarray
) -> Tensor:
    """Loss of the `chosen` sequences, each of which has labels."""
    lengths, counts = layout.lengths[chosen], label_layout.lengths[chosen]
    time = np.arange(lengths.max())[:, None]
    rows = np.where(time < lengths, layout.starts[chosen] + time, layout.tokens)
    padded = paddle.concat([logits_TV, paddle.zeros([1, logits_TV.shape[1]], logits_TV.dtype)])
    logits = paddle.gather(padded, paddle.to_tensor(rows.ravel())).reshape([*rows.shape, -1])
    targets = np.zeros((len(chosen), counts.max()), np.int32)
    for row, n in zip(targets, chosen, strict=True):
        sequence_labels = labels[label_layout.offsets[n] : label_layout.offsets[n + 1]]
        row[: len(sequence_labels)] = sequence_labels
    sizes = (paddle.to_tensor(part.astype(np.int64)) for part in (lengths, counts))
    return F.ctc_loss(logits, paddle.to_tensor(targets), *sizes, blank=blank, reduction="none").sum()

"""From the encoder's vectors of a text to frames of speech, and from these to sound.

Ping et al., 2019, "ClariNet" (arXiv 1807.07281), section 4: an attention decoder of convolutions for frames (as Deep
Voice 3: Ping et al., 2018, arXiv 1710.07654), a bridge that makes of its states what a WaveNet is conditioned on.
Attention is not theirs, to what tokens and frames hold and to where they are expected, but goes on through the text by
as much as each step tells (Graves, 2013, arXiv 1308.0850, section 5; Battenberg et al., 2020, arXiv 1910.10288).

Legend: N sequences, L tokens of the longest, F steps of the longest, D width, M features of the frames of a step, S
samples, H features of the conditioner.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor, nn

from ernie.audio.voice import VoiceConfig
from ernie.data.batch import Layout
from ernie.kernels.attention import pad
from ernie.kernels.linear import linear
from ernie.model.wavenet import Flow, WaveNet
from ernie.text.tokenizer import Tokenizer

_WIDTH = 3  # steps that a convolution of the decoder sees, frames that one of the bridge sees on either side of its own
_BLOCKS = 2  # convolutions before the attention, and behind it; and in the bridge
_HALF = math.sqrt(0.5)
# Of what the decoder knows of the frames before: it would else learn from them alone, which it foretells so well that
# it hardly looks at the text (Wang et al., 2017, "Tacotron", arXiv 1703.10135, section 3.1).
_FORGOTTEN = 0.5
_OUTSIDE = -1e9  # a score that leaves nothing of what is not to be seen


class Told(NamedTuple):
    """What the decoder tells of each step: its `frames` (N, F, M), whether it is the last, as a logit (N, F), the state
    (N, F, D) that the bridge makes sound of, and where it looked, (N, F, L)."""

    frames: Tensor
    last: Tensor
    states: Tensor
    looked: Tensor


class Text(NamedTuple):
    """What is read of the texts: values (N, L, D), how many tokens and letters each has, (N,), and how many letters lie
    before the middle of each token, (N, L)."""

    values: Tensor
    lengths: np.ndarray
    letters: np.ndarray
    middles: np.ndarray


class FrameDecoder(nn.Layer):
    """Frames step by step: what was heard so far, and where in the text it is, tell what comes next.

    A token lies behind the letters of those before it, of which `letters` (V,) has the number.  Attention is a bell
    over the letters.  Each step tells, from what was heard, how many letters it goes on by, never back, and how narrow
    the bell is: at first `pace` letters, and a deviation of one.
    """

    def __init__(self, width: int, features: int, letters: np.ndarray, pace: float):
        super().__init__()
        self.first, self.second = nn.Linear(features, width), nn.Linear(width, width)
        self.before = nn.LayerList([_Convolution(width, _WIDTH - 1, 0) for _ in range(_BLOCKS)])
        self.behind = nn.LayerList([_Convolution(width, _WIDTH - 1, 0) for _ in range(_BLOCKS)])
        self.moves = nn.Linear(width, 2)
        self.value, self.mixed = nn.Linear(width, width), nn.Linear(width, width)
        self.frames, self.last = nn.Linear(width, features), nn.Linear(width, 1)
        self.dropout = nn.Dropout(0.1)
        self.pace, self._letters = pace, letters

    def read(self, encoded_TD: Tensor, ids_T: np.ndarray, layout: Layout) -> Text:
        """What can be looked at of texts, from their tokens and the encoder's vectors."""
        padded_NLD = pad(encoded_TD, layout).reshape([layout.sequences, layout.longest, -1])
        letters_NL = np.zeros((layout.sequences, layout.longest))
        letters_NL.reshape(-1)[layout.slots] = self._letters[ids_T]
        behind_NL = np.cumsum(letters_NL, axis=1)
        values_NLD = _through(self.value, padded_NLD)
        return Text(values_NLD, layout.lengths, behind_NL[:, -1], behind_NL - letters_NL / 2)

    def forward(self, before_NFM: Tensor, text: Text) -> Told:
        """What follows each step, all of which are there, as in learning; `before` are the frames that it follows."""
        return self.go_on(before_NFM, text, None)[0]

    def go_on(self, before_NFM: Tensor, text: Text, kept: list[Tensor] | None) -> tuple[Told, list[Tensor]]:
        """The same for steps that follow others, of which `kept` is what is needed: the inputs of the convolutions, and
        where in the text they have come to."""
        *inputs, at_N1 = kept or [None] * (2 * _BLOCKS + 1)
        held, keeps = iter(inputs), []
        x_NFD = F.dropout(F.relu(_through(self.first, before_NFM)), _FORGOTTEN, training=self.training)
        x_NFD = F.dropout(F.relu(_through(self.second, x_NFD)), _FORGOTTEN, training=self.training)
        for block in self.before:
            x_NFD, keep = block(x_NFD, next(held))
            keeps.append(keep)
        looked_NFL, at_NF = self._look(x_NFD, text, at_N1)
        x_NFD = (x_NFD + _through(self.mixed, paddle.matmul(looked_NFL, text.values))) * _HALF
        for block in self.behind:
            x_NFD, keep = block(self.dropout(x_NFD), next(held))
            keeps.append(keep)
        last_NF = _through(self.last, x_NFD).squeeze(-1)
        return Told(_through(self.frames, x_NFD), last_NF, x_NFD, looked_NFL), [*keeps, at_NF[:, -1:]]

    def _look(self, x_NFD: Tensor, text: Text, at_N1: Tensor | None) -> tuple[Tensor, Tensor]:
        """How much each step looks at each token, (N, F, L), and behind how many letters it is, (N, F); those before
        have come to `at`, or there are none."""
        # Both are one where nothing is learnt yet.
        far_NF, narrow_NF = (F.softplus(part) / math.log(2) for part in _through(self.moves, x_NFD).unbind(-1))
        at_NF = paddle.cumsum(self.pace * far_NF, axis=1)
        if at_N1 is not None:
            at_NF = at_NF + at_N1
        middles_NL = paddle.to_tensor(text.middles.astype(np.float32))
        away_NFL = middles_NL.unsqueeze(1) - at_NF.unsqueeze(-1)
        inside_NL = np.arange(middles_NL.shape[1]) < text.lengths[:, None]
        outside_NL = paddle.to_tensor(np.where(inside_NL, 0.0, _OUTSIDE).astype(np.float32))
        scores_NFL = outside_NL.unsqueeze(1) - 0.5 * narrow_NF.unsqueeze(-1) * away_NFL * away_NFL
        return F.softmax(scores_NFL, axis=-1), at_NF


class Bridge(nn.Layer):
    """From the decoder's states to what each sample is conditioned on, (N, F, D) -> (N, S, H).

    The frames of each step, convolutions over frames on either side, and two transposed convolutions from frames to
    samples, each of which makes `strides` of one.
    """

    def __init__(self, width: int, config: VoiceConfig, hop: int):
        super().__init__()
        H = config.conditioner
        self.apart = nn.Linear(width, config.reduction * H)
        self.blocks = nn.LayerList([_Convolution(H, _WIDTH, _WIDTH) for _ in range(_BLOCKS)])
        self.wider = nn.LayerList([_Widening(stride) for stride in strides(hop)])
        self._reduction = config.reduction
        self.samples = config.reduction * hop  # of a step

    def forward(self, states_NFD: Tensor) -> Tensor:
        """The conditioner of all samples of these steps."""
        N, steps = states_NFD.shape[:2]
        x_NSH = _through(self.apart, states_NFD).reshape([N, steps * self._reduction, -1])
        for block in self.blocks:
            x_NSH, _ = block(x_NSH)
        for wider in self.wider:
            x_NSH = wider(x_NSH)
        return x_NSH

    @property
    def reach(self) -> int:
        """How many steps on either side of its own the conditioner of a sample depends on."""
        frames = _BLOCKS * _WIDTH + 2  # two transposed convolutions see not quite one frame more each
        return -(-frames // self._reduction)


class VoiceHead(nn.Layer):
    """What speaks for an encoder: decoder, bridge, the WaveNet and, where there is one, the flow that has its voice."""

    def __init__(
        self,
        width: int,
        config: VoiceConfig,
        features: int,
        hop: int,
        letters: np.ndarray,
        *,
        pace: float,
        loudness: float,
        flow: bool,
    ):
        super().__init__()
        self.decoder = FrameDecoder(width, features * config.reduction, letters, pace)
        self.bridge = Bridge(width, config, hop)
        self.wavenet = WaveNet(config.wavenet, config.conditioner, loudness)
        self.flow = Flow(config.flow, config.conditioner, config.flows, loudness) if flow else None

    def begin(self) -> None:
        """Draw the first weights: of each matrix so that what comes out is about as large as what goes in."""
        for layer in self.sublayers():
            if isinstance(layer, nn.Linear):
                nn.initializer.XavierUniform()(layer.weight)
            if isinstance(layer, _Widening):
                layer.begin()
        with paddle.no_grad():
            paddle.assign(paddle.zeros_like(self.decoder.moves.weight), self.decoder.moves.weight)


def letters_of(tokenizer: Tokenizer) -> np.ndarray:
    """How many letters each token of a vocabulary writes, (V,)."""
    found = np.array([len(token.removeprefix("##").replace("▁", "")) for token in tokenizer.tokens], np.float64)
    special = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id)
    found[list(special)] = 0
    return found


class _Convolution(nn.Layer):
    """A gated convolution over steps with a residual; each sees some steps before its own, and some behind it."""

    def __init__(self, width: int, before: int, behind: int):
        super().__init__()
        self.taps = nn.Linear((before + 1 + behind) * width, 2 * width)
        self._before, self._behind = before, behind

    def forward(self, x_NFD: Tensor, held_NFD: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The output, and what the steps that follow will need; `held` is what these need, silence if left out."""
        N, steps, width = x_NFD.shape
        if held_NFD is None:
            held_NFD = paddle.zeros([N, self._before, width])
        whole = paddle.concat([held_NFD, x_NFD, paddle.zeros([N, self._behind, width])], axis=1)
        taps = self._before + 1 + self._behind
        joined = paddle.concat([whole[:, tap : tap + steps] for tap in range(taps)], axis=-1)
        a, b = paddle.chunk(_through(self.taps, joined), 2, axis=-1)
        return (x_NFD + a * F.sigmoid(b)) * _HALF, whole[:, steps : steps + self._before]


class _Widening(nn.Layer):
    """A transposed convolution over time and its neighbours among the features, and a softsign."""

    def __init__(self, stride: int):
        super().__init__()
        self._stride = stride
        self.weight = self.create_parameter([1, 1, 2 * stride, _WIDTH])
        self.bias = self.create_parameter([1], is_bias=True)

    def begin(self) -> None:
        """Draw a line from each frame to the next."""
        rising = (np.arange(self._stride) + 0.5) / self._stride
        line = np.concatenate([rising, rising[::-1]])
        weight = np.zeros((1, 1, 2 * self._stride, _WIDTH), np.float32)
        weight[0, 0, :, _WIDTH // 2] = line
        with paddle.no_grad():
            paddle.assign(paddle.to_tensor(weight), self.weight)

    def forward(self, x_NSH: Tensor) -> Tensor:
        """`stride` times as many."""
        count = x_NSH.shape[1] * self._stride
        padding = [0, _WIDTH // 2]
        y = F.conv2d_transpose(x_NSH.unsqueeze(1), self.weight, self.bias, stride=[self._stride, 1], padding=padding)
        first = self._stride // 2
        return F.softsign(y[:, 0, first : first + count])


def strides(hop: int) -> tuple[int, int]:
    """Two factors of a hop, as near to each other as there are."""
    low = max(factor for factor in range(1, math.isqrt(hop) + 1) if hop % factor == 0)
    return hop // low, low


def _through(layer: nn.Linear, x: Tensor) -> Tensor:
    """A linear layer over the last axis."""
    width = x.shape[-1]
    return linear(x.reshape([-1, width]), layer.weight, layer.bias).reshape([*x.shape[:-1], layer.weight.shape[1]])

"""Truncated attention: what a decoder learns to write, and writes, of each piece of a stream of sound.

SMLTA (Baidu, 2019), in the form of a Transformer decoder whose layers look at one piece after the other: each of them
attends to the piece anew with what the one below has found, which is the stacked attention of patent US10854193B2.

Legend: T vectors, U tokens that are written, D width.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from paddle import Tensor

from ernie.data.batch import Layout
from ernie.decode.ctc import Spike, greedy
from ernie.decode.cutting import MOST, Cutting, align
from ernie.decode.stream import part, under
from ernie.kernels.mask import Mask
from ernie.model.decoder import Source
from ernie.model.losses import Loss
from ernie.model.memory import Memory
from ernie.model.speech import SpeechHead
from ernie.model.translation import TranslationHead

SMOOTHING = 0.1  # of labels: Szegedy et al., 2016 (arXiv 1512.00567), section 7


@dataclass(frozen=True, eq=False)
class Writing:
    """How far one stream is: `vectors` were heard, those from `first` on are `seen`, and pieces go to the vector `cut`.

    `spikes` are those of CTC.  `count` tokens were written, the one after each piece among them; `last` is the last of
    them, and `own` what the decoder remembers of them.
    """

    seen: Memory
    own: Memory
    spikes: tuple[int, ...] = ()
    vectors: int = 0
    first: int = 0
    cut: int = -1
    count: int = 0
    last: int = -1

    @classmethod
    def begin(cls) -> Writing:
        """That of a stream of which nothing was heard."""
        return cls(Memory.empty(1), Memory.empty(1))

    def arrays(self) -> dict[str, np.ndarray]:
        """All that is known, as arrays by name."""
        told = {name: getattr(self, name) for name in ("spikes", "vectors", "first", "cut", "count", "last")}
        memories = under("seen", self.seen.arrays()) | under("own", self.own.arrays())
        return {"told": np.array(json.dumps(told)), **memories}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Writing:
        """That of which `arrays` gave these."""
        told = json.loads(str(arrays["told"]))
        seen, own = (Memory.of_arrays(part(name, arrays)) for name in ("seen", "own"))
        return cls(seen, own, **{**told, "spikes": tuple(told["spikes"])})


class PieceWriter:
    """Writes none, one or two tokens of each piece; the token `end` says that a piece has no more."""

    def __init__(self, head: TranslationHead, cutting: Cutting, begin: int, end: int, never: Sequence[int]):
        self._head, self._cutting, self._begin, self._end = head, cutting, begin, end
        self._never = [token for token in (begin, *never) if token != end]
        assert head.remembered is not None
        self._remembered = head.remembered - 1  # a token sees itself, too

    def go_on(
        self, writing: Writing, hidden_TD: Tensor, spikes: Sequence[int], ended: bool
    ) -> tuple[Writing, list[Spike]]:
        """More vectors (T, D) of a stream, and the vectors at which CTC has told tokens; what is written of them."""
        count = hidden_TD.shape[0]
        if count:
            seen = writing.seen.extended(Layout.of_lengths([count]), self._head.decoder.read(hidden_TD))
            heard = (*writing.spikes, *spikes)
            writing = replace(writing, seen=seen, spikes=heard, vectors=writing.vectors + count)
        new: list[Spike] = []
        while (cut := self._cutting.following(writing.cut, writing.spikes, writing.vectors, ended)) is not None:
            if cut + self._cutting.ahead >= writing.vectors and not ended:
                break  # what lies behind the piece is not there yet
            writing, tokens = self._write(writing, cut)
            new += tokens
        return writing, new

    def _write(self, writing: Writing, cut: int) -> tuple[Writing, list[Spike]]:
        """One piece."""
        window = self._cutting.window(writing.cut, cut)
        own, last, count, new = writing.own, writing.last, writing.count, []
        layout = Layout.of_lengths([1])
        sees = Mask.between(*(np.array([at - writing.first]) for at in window))
        for number in range(MOST + 1):
            given = np.array([self._begin if last < 0 else last])
            x_UD, own = self._head.go_on(given, layout, Source(writing.seen, layout, sees), own, np.array([count]))
            own, count = own.last(self._remembered), count + 1
            scores_V = self._head.scores(x_UD)[0]
            scores_V[self._never] = -np.inf
            last = int(scores_V.argmax()) if number < MOST else self._end
            if last == self._end:
                break
            new.append(Spike(last, cut, float(np.exp(scores_V[last]))))
        # What no later piece looks at may be forgotten.
        first = max(writing.first, cut + 1 - self._cutting.back)
        seen = writing.seen.last(writing.vectors - first)
        spikes = tuple(spike for spike in writing.spikes if spike > cut)
        return replace(writing, seen=seen, own=own, spikes=spikes, first=first, cut=cut, count=count, last=last), new


def attention_loss(
    head: SpeechHead,
    hidden_TD: Tensor,
    layout: Layout,
    labels: Sequence[np.ndarray],
    cutting: Cutting,
    begin: int,
    end: int,
    before: np.ndarray,
) -> Loss:
    """The cross entropy of the labels, (L,) for each sequence, and of the end of each piece, a tenth of it smoothed.

    The sound is cut where CTC would cut it now, as far as that suits the labels (see `Cutting.taught`).  Positions are
    counted as if `before` (N,) tokens had been written: from the same place each time, the decoder would learn how many
    tokens a sound has, and write no more of a longer one.
    """
    assert head.writer is not None
    scores = np.split(head(hidden_TD.detach()).numpy(), layout.offsets[1:-1])
    targets: list[np.ndarray] = []
    firsts: list[np.ndarray] = []
    lasts: list[np.ndarray] = []
    for scores_TV, own in zip(scores, labels, strict=True):
        spikes = [spike.vector for spike in greedy(scores_TV, head.blank)]
        cuts = cutting.taught(spikes, align(scores_TV, own.tolist(), head.blank), len(scores_TV))
        counts = np.array([count for _, count in cuts])
        ends = np.cumsum(counts)
        targets.append(np.insert(own, ends, end))
        seen = cutting.windows([cut for cut, _ in cuts])
        firsts.append(np.repeat([window.first for window in seen], counts + 1))
        lasts.append(np.repeat([window.last for window in seen], counts + 1))
    written = Layout.of_lengths([len(one) for one in targets])
    joined = np.concatenate(targets).astype(np.int64)
    given = np.append(begin, joined[:-1])
    given[written.starts] = begin
    sees = Mask.between(np.concatenate(firsts), np.concatenate(lasts))
    source = Source(Memory(layout, head.writer.decoder.read(hidden_TD)), written, sees)
    x_UD, _ = head.writer.go_on(given, written, source, Memory.empty(written.sequences), before)
    return head.writer.loss(x_UD, joined, SMOOTHING)

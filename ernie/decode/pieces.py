"""Truncated attention: what a decoder learns to write, and writes, of each piece of a stream of sound.

SMLTA (Baidu, 2019), in the form of a Transformer decoder whose layers look at one piece after the other: each of them
attends to the piece anew with what the one below has found, which is the stacked attention of patent US10854193B2.
With abstractions a piece is first encoded with what was read of those before it (SMLTA2).

Legend: T vectors, P vectors of all pieces, which overlap, U tokens that are written, D width.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import paddle
from paddle import Tensor

from ernie.data.batch import Layout
from ernie.decode.ctc import Spike, greedy
from ernie.decode.cutting import MOST, Cutting, align
from ernie.decode.stream import part, under
from ernie.kernels.precision import to_numpy
from ernie.model.decoder import Source
from ernie.model.losses import Loss
from ernie.model.memory import Memory
from ernie.model.speech import SpeechHead

SMOOTHING = 0.1  # of labels: Szegedy et al., 2016 (arXiv 1512.00567), section 7


@dataclass(frozen=True, eq=False)
class Writing:
    """How far one stream is: `vectors` were heard, those from `first` on are `seen`, and pieces go to the vector `cut`.

    `spikes` are those of CTC.  `count` tokens were written, the one after each piece among them; `last` is the last of
    them, `own` what the decoder remembers of them, and `abstractions` are those of the last of them.
    """

    seen: Tensor
    own: Memory
    abstractions: Memory
    spikes: tuple[int, ...] = ()
    vectors: int = 0
    first: int = 0
    cut: int = -1
    count: int = 0
    last: int = -1

    @classmethod
    def begin(cls) -> Writing:
        """That of a stream of which nothing was heard."""
        return cls(paddle.zeros([0, 0]), Memory.empty(1), Memory.empty(1))

    def arrays(self) -> dict[str, np.ndarray]:
        """All that is known, as arrays by name."""
        told = {name: getattr(self, name) for name in ("spikes", "vectors", "first", "cut", "count", "last")}
        memories = under("own", self.own.arrays()) | under("abstractions", self.abstractions.arrays())
        return {"told": np.array(json.dumps(told)), "seen": to_numpy(self.seen), **memories}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Writing:
        """That of which `arrays` gave these."""
        told = json.loads(str(arrays["told"]))
        own, abstractions = (Memory.of_arrays(part(name, arrays)) for name in ("own", "abstractions"))
        told["spikes"] = tuple(told["spikes"])
        return cls(paddle.to_tensor(arrays["seen"]), own, abstractions, **told)


class PieceWriter:
    """Writes none, one or two tokens of each piece; the token `end` says that a piece has no more."""

    def __init__(self, head: SpeechHead, cutting: Cutting, begin: int, end: int, never: Sequence[int]):
        assert head.writer is not None
        assert head.writer.remembered is not None
        self._head, self._abstraction, self._seen = head.writer, head.abstraction, head.seen
        self._cutting, self._begin, self._end = cutting, begin, end
        self._never = [token for token in (begin, *never) if token != end]
        self._remembered = head.writer.remembered - 1  # a token sees itself, too

    def go_on(
        self, writing: Writing, hidden_TD: Tensor, spikes: Sequence[int], ended: bool
    ) -> tuple[Writing, list[Spike]]:
        """More vectors (T, D) of a stream, and the vectors at which CTC has told tokens; what is written of them."""
        count = hidden_TD.shape[0]
        if count:
            before = writing.seen.astype(hidden_TD.dtype)  # that of a saved state is float32
            seen = paddle.concat([before, hidden_TD]) if writing.vectors else hidden_TD
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
        window = self._cutting.window(writing.cut, cut).within(writing.vectors)
        own, last, count, new = writing.own, writing.last, writing.count, []
        heard_PD = writing.seen[window.first - writing.first : window.last - writing.first]
        heard_PD = self._seen(heard_PD, window.parts)
        piece, layout = Layout.of_lengths([heard_PD.shape[0]]), Layout.of_lengths([1])
        source_PD = heard_PD
        if self._abstraction is not None:
            source_PD = self._abstraction.encode(heard_PD, piece, writing.abstractions)
        source = Source(Memory(piece, self._head.decoder.read(source_PD)), layout)
        for number in range(MOST + 1):
            given = np.array([self._begin if last < 0 else last])
            x_UD, own = self._head.go_on(given, layout, source, own, np.array([count]))
            own, count = own.last(self._remembered), count + 1
            scores_V = self._head.scores(x_UD)[0]
            scores_V[self._never] = -np.inf
            last = int(scores_V.argmax()) if number < MOST else self._end
            if last == self._end:
                break
            new.append(Spike(last, cut, float(np.exp(scores_V[last]))))
        abstractions = writing.abstractions
        if self._abstraction is not None:
            tokens = np.array([*(spike.token for spike in new), self._end])
            told = Layout.of_lengths([len(tokens)])
            x_UD = self._head.embed(tokens, writing.count + 1 + np.arange(len(tokens)))
            found = self._abstraction.abstract(x_UD, told, heard_PD, piece)
            abstractions = abstractions.extended(told, found).last(self._abstraction.most)
        # What no later piece looks at may be forgotten.
        first = max(writing.first, cut + 1 - self._cutting.back)
        spikes = tuple(spike for spike in writing.spikes if spike > cut)
        written = replace(writing, own=own, abstractions=abstractions, cut=cut, count=count, last=last)
        return replace(written, seen=writing.seen[first - writing.first :], first=first, spikes=spikes), new


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
    writer, abstraction = head.writer, head.abstraction
    assert writer is not None
    scores = np.split(to_numpy(head(hidden_TD.detach())), layout.offsets[1:-1])
    targets: list[np.ndarray] = []
    counts: list[np.ndarray] = []  # of the tokens of each piece
    seen: list[np.ndarray] = []  # of each piece the vectors, and where they lie
    parts: list[np.ndarray] = []
    for start, scores_TV, own in zip(layout.starts, scores, labels, strict=True):
        spikes = [spike.vector for spike in greedy(scores_TV, head.blank)]
        cuts = cutting.taught(spikes, align(scores_TV, own.tolist(), head.blank), len(scores_TV))
        own_counts = np.array([count for _, count in cuts])
        targets.append(np.insert(own, np.cumsum(own_counts), end))
        counts.append(own_counts + 1)
        windows = cutting.windows([cut for cut, _ in cuts], len(scores_TV))
        seen += [start + np.arange(window.first, window.last) for window in windows]
        parts += [window.parts for window in windows]
    written, tokens = Layout.of_lengths([len(one) for one in targets]), Layout.of_lengths(np.concatenate(counts))
    joined = np.concatenate(targets).astype(np.int64)
    given = np.append(begin, joined[:-1])
    given[written.starts] = begin
    pieces = Layout.of_lengths([len(one) for one in seen])
    pieces_PD = paddle.gather(hidden_TD, paddle.to_tensor(np.concatenate(seen)))
    pieces_PD = head.seen(pieces_PD, np.concatenate(parts))
    if abstraction is not None:
        places = written.positions + 1 + np.repeat(before, written.lengths)
        told = abstraction.abstract(writer.embed(joined, places), tokens, pieces_PD, pieces)
        sounds = np.repeat(np.arange(layout.sequences), [len(one) for one in counts])
        pieces_PD = abstraction.encode(pieces_PD, pieces, abstraction.preceding(told, tokens, sounds))
    source = Source(Memory(pieces, writer.decoder.read(pieces_PD)), tokens)
    x_UD, _ = writer.go_on(given, written, source, Memory.empty(written.sequences), before)
    return writer.loss(x_UD, joined, SMOOTHING)

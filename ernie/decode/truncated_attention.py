"""Truncated attention: the loss and the inference of a decoder that reads a sound stream segment by segment.

SMLTA (Baidu, 2019), here with a Transformer decoder: each of its layers attends to the segment again, with the output
of the layer below as query, which is the stacked attention of patent US10854193B2.  With abstractions (SMLTA2) a
segment is first encoded together with a summary of the tokens of preceding segments.

Legend: T vectors, P vectors of all windows, which overlap, U target tokens, D width.
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
from ernie.decode.segmentation import MAX_TOKENS, Segmentation, align
from ernie.decode.stream import strip_prefix, with_prefix
from ernie.kernels.precision import to_numpy
from ernie.model.cache import KeyValueCache
from ernie.model.decoder import Source
from ernie.model.losses import Loss
from ernie.model.speech import SpeechHead

SMOOTHING = 0.1  # label smoothing: Szegedy et al., 2016 (arXiv 1512.00567), section 7


@dataclass(frozen=True, eq=False)
class SegmentDecoderState:
    """The decoder state of one stream: of `vectors` received, those from `first` on are kept in `hidden`.

    Segments are decoded up to the vector `cut`; `spikes` are the CTC spikes after it.  `count` tokens were generated,
    the end of each segment included; `last` is the last of them, `cache` the decoder's self-attention cache, and
    `abstractions` the cached abstractions of the last tokens.
    """

    hidden: Tensor
    cache: KeyValueCache
    abstractions: KeyValueCache
    spikes: tuple[int, ...] = ()
    vectors: int = 0
    first: int = 0
    cut: int = -1
    count: int = 0
    last: int = -1

    @classmethod
    def begin(cls) -> SegmentDecoderState:
        """Return the state of a stream before its first vector."""
        return cls(paddle.zeros([0, 0]), KeyValueCache.empty(1), KeyValueCache.empty(1))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the whole state as arrays by name."""
        fields = {name: getattr(self, name) for name in ("spikes", "vectors", "first", "cut", "count", "last")}
        caches = with_prefix("own", self.cache.arrays()) | with_prefix("abstractions", self.abstractions.arrays())
        return {"told": np.array(json.dumps(fields)), "seen": to_numpy(self.hidden), **caches}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> SegmentDecoderState:
        """Restore a state from its `arrays`."""
        fields = json.loads(str(arrays["told"]))
        cache, abstractions = (KeyValueCache.of_arrays(strip_prefix(name, arrays)) for name in ("own", "abstractions"))
        fields["spikes"] = tuple(fields["spikes"])
        return cls(paddle.to_tensor(arrays["seen"]), cache, abstractions, **fields)


class SegmentDecoder:
    """Generates zero to two tokens for each segment, until the token `end`; those in `never` are excluded."""

    def __init__(self, head: SpeechHead, segmentation: Segmentation, begin: int, end: int, never: Sequence[int]):
        assert head.writer is not None
        assert head.writer.window is not None
        self._head, self._abstraction, self._embed_segments = head.writer, head.abstraction, head.embed_segments
        self._segmentation, self._begin, self._end = segmentation, begin, end
        self._never = [token for token in (begin, *never) if token != end]
        self._cached_tokens = head.writer.window - 1  # the window includes the current token

    def push(
        self, state: SegmentDecoderState, hidden_TD: Tensor, spikes: Sequence[int], ended: bool
    ) -> tuple[SegmentDecoderState, list[Spike]]:
        """Take more vectors (T, D) of a stream and their CTC spikes; return the tokens of segments complete by now."""
        count = hidden_TD.shape[0]
        if count:
            before = state.hidden.astype(hidden_TD.dtype)  # a saved state holds float32
            hidden = paddle.concat([before, hidden_TD]) if state.vectors else hidden_TD
            state = replace(state, hidden=hidden, spikes=(*state.spikes, *spikes), vectors=state.vectors + count)
        new: list[Spike] = []
        while (cut := self._segmentation.next_cut(state.cut, state.spikes, state.vectors, ended)) is not None:
            if cut + self._segmentation.ahead >= state.vectors and not ended:
                break  # the look-ahead is not available yet
            state, tokens = self._decode_segment(state, cut)
            new += tokens
        return state, new

    def _decode_segment(self, state: SegmentDecoderState, cut: int) -> tuple[SegmentDecoderState, list[Spike]]:
        window = self._segmentation.window(state.cut, cut).clipped(state.vectors)
        cache, last, count, new = state.cache, state.last, state.count, []
        hidden_PD = state.hidden[window.first - state.first : window.last - state.first]
        hidden_PD = self._embed_segments(hidden_PD, window.parts)
        segment, layout = Layout.of_lengths([hidden_PD.shape[0]]), Layout.of_lengths([1])
        source_PD = hidden_PD
        if self._abstraction is not None:
            source_PD = self._abstraction.encode(hidden_PD, segment, state.abstractions)
        source = Source(KeyValueCache(segment, self._head.decoder.read(source_PD)), layout)
        for number in range(MAX_TOKENS + 1):
            inputs = np.array([self._begin if last < 0 else last])
            x_UD, cache = self._head.forward_cached(inputs, layout, source, cache, np.array([count]))
            cache, count = cache.last(self._cached_tokens), count + 1
            scores_V = self._head.scores(x_UD)[0]
            scores_V[self._never] = -np.inf
            last = int(scores_V.argmax()) if number < MAX_TOKENS else self._end
            if last == self._end:
                break
            new.append(Spike(last, cut, float(np.exp(scores_V[last]))))
        abstractions = state.abstractions
        if self._abstraction is not None:
            tokens = np.array([*(spike.token for spike in new), self._end])
            token_layout = Layout.of_lengths([len(tokens)])
            x_UD = self._head.embed(tokens, state.count + 1 + np.arange(len(tokens)))
            pairs = self._abstraction.abstract(x_UD, token_layout, hidden_PD, segment)
            abstractions = abstractions.extended(token_layout, pairs).last(self._abstraction.max_tokens)
        # Drop the vectors that no later segment looks back on.
        first = max(state.first, cut + 1 - self._segmentation.back)
        spikes = tuple(spike for spike in state.spikes if spike > cut)
        hidden = state.hidden[first - state.first :]
        decoded = replace(state, cache=cache, abstractions=abstractions, cut=cut, count=count, last=last)
        return replace(decoded, hidden=hidden, first=first, spikes=spikes), new


def attention_loss(
    head: SpeechHead,
    hidden_TD: Tensor,
    layout: Layout,
    labels: Sequence[np.ndarray],
    segmentation: Segmentation,
    begin: int,
    end: int,
    before: np.ndarray,
) -> Loss:
    """Return the cross entropy of the labels, (L,) for each sequence, and of the segment ends, with smoothing 0.1.

    The sound is cut at the current CTC spikes, adjusted to the labels (see `Segmentation.training_cuts`).  Positions
    are counted as if `before` (N,) tokens had been generated: if they always started at the same value, the decoder
    would learn how many tokens a sound has, and generate no more for a longer one.
    """
    writer, abstraction = head.writer, head.abstraction
    assert writer is not None
    scores = np.split(to_numpy(head(hidden_TD.detach())), layout.offsets[1:-1])
    targets: list[np.ndarray] = []
    counts: list[np.ndarray] = []  # tokens in each segment
    rows: list[np.ndarray] = []  # visible vectors of each segment, and their positions relative to it
    parts: list[np.ndarray] = []
    for start, scores_TV, own in zip(layout.starts, scores, labels, strict=True):
        spikes = [spike.vector for spike in greedy(scores_TV, head.blank)]
        cuts = segmentation.training_cuts(spikes, align(scores_TV, own.tolist(), head.blank), len(scores_TV))
        label_counts = np.array([count for _, count in cuts])
        targets.append(np.insert(own, np.cumsum(label_counts), end))
        counts.append(label_counts + 1)
        windows = segmentation.windows([cut for cut, _ in cuts], len(scores_TV))
        rows += [start + np.arange(window.first, window.last) for window in windows]
        parts += [window.parts for window in windows]
    written = Layout.of_lengths([len(target) for target in targets])
    tokens = Layout.of_lengths(np.concatenate(counts))
    joined = np.concatenate(targets).astype(np.int64)
    inputs = np.append(begin, joined[:-1])
    inputs[written.starts] = begin
    segments = Layout.of_lengths([len(row) for row in rows])
    hidden_PD = paddle.gather(hidden_TD, paddle.to_tensor(np.concatenate(rows)))
    hidden_PD = head.embed_segments(hidden_PD, np.concatenate(parts))
    if abstraction is not None:
        positions = written.positions + 1 + np.repeat(before, written.lengths)
        pairs = abstraction.abstract(writer.embed(joined, positions), tokens, hidden_PD, segments)
        sounds = np.repeat(np.arange(layout.sequences), [len(own_counts) for own_counts in counts])
        hidden_PD = abstraction.encode(hidden_PD, segments, abstraction.preceding(pairs, tokens, sounds))
    source = Source(KeyValueCache(segments, writer.decoder.read(hidden_PD)), tokens)
    x_UD, _ = writer.forward_cached(inputs, written, source, KeyValueCache.empty(written.sequences), before)
    return writer.loss(x_UD, joined, SMOOTHING)

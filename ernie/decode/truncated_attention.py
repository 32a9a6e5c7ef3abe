"""Truncated attention: the loss and the inference of a decoder that reads a sound stream segment by segment.

SMLTA (Baidu, 2019), here with a Transformer decoder: each of its layers attends to the segment again, with the output
of the layer below as query, which is the stacked attention of patent US10854193B2.  With abstractions (SMLTA2) a
segment is first encoded together with a summary of the tokens of preceding segments.

Legend: T vectors, P vectors of all windows, which overlap, U target tokens, D width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import paddle
from paddle import Tensor

from ernie.data.batch import Layout
from ernie.decode.ctc import Beam, Spike, greedy
from ernie.decode.paths import AcousticPath, Branch, best, committed, extensions, merged, shared_tokens
from ernie.decode.segmentation import MAX_TOKENS, Segmentation, align
from ernie.kernels.precision import to_numpy
from ernie.model.cache import KeyValueCache
from ernie.model.decoder import Source
from ernie.model.losses import Loss
from ernie.model.speech import SpeechHead

_BLOCK = 256  # vectors of a whole sound that are read at a time: what waits is copied for each segment
SMOOTHING = 0.1  # label smoothing: Szegedy et al., 2016 (arXiv 1512.00567), section 7


@dataclass(frozen=True, eq=False)
class SegmentDecoderState:
    """The decoder state of one stream: of `vectors` received, those from `first` on are kept in `hidden`.

    Segments are decoded up to the vector `cut`; `spikes` are the CTC spikes after it.  `paths` are the hypotheses, the
    best one first; `cache` holds the decoder's self-attention cache of each, `abstractions` the cached abstractions of
    its last tokens.  The last committed token is at the vector `committed`.
    """

    hidden: Tensor
    cache: KeyValueCache
    abstractions: KeyValueCache
    paths: tuple[AcousticPath, ...] = (AcousticPath(),)
    spikes: tuple[int, ...] = ()
    vectors: int = 0
    first: int = 0
    cut: int = -1
    committed: int = 0

    @classmethod
    def begin(cls) -> SegmentDecoderState:
        """Return the state of a stream before its first vector."""
        return cls(paddle.zeros([0, 0]), KeyValueCache.empty(1), KeyValueCache.empty(1))


class SegmentDecoder:
    """Generates zero to two tokens for each segment, until the token `end`; those in `never` are excluded.

    Of all paths through the segments the `beam` keeps the best (by default one, which is greedy); a token is committed
    once all of them have it, or the sound is over.
    """

    def __init__(
        self,
        head: SpeechHead,
        segmentation: Segmentation,
        begin: int,
        end: int,
        never: Sequence[int],
        beam: Beam | None = None,
    ):
        assert head.writer is not None
        assert head.writer.window is not None
        self._head, self._abstraction, self._embed_segments = head.writer, head.abstraction, head.embed_segments
        self._segmentation, self._begin, self._end = segmentation, begin, end
        self._never = [token for token in (begin, *never) if token != end]
        self._beam = beam or Beam(head.blank, width=1)
        self._cached_tokens = head.writer.window - 1  # the window includes the current token

    def push(
        self, state: SegmentDecoderState, hidden_TD: Tensor, spikes: Sequence[int], ended: bool
    ) -> tuple[SegmentDecoderState, list[Spike]]:
        """Take more vectors (T, D) of a stream and their CTC spikes; return the tokens that are committed by now."""
        count = hidden_TD.shape[0]
        if count:
            before = state.hidden.astype(hidden_TD.dtype)  # a saved state holds float32
            hidden = paddle.concat([before, hidden_TD]) if state.vectors else hidden_TD
            state = replace(state, hidden=hidden, spikes=(*state.spikes, *spikes), vectors=state.vectors + count)
        new: list[Spike] = []
        while (cut := self._segmentation.next_cut(state.cut, state.spikes, state.vectors, ended)) is not None:
            if cut + self._segmentation.ahead >= state.vectors and not ended:
                break  # the look-ahead is not available yet
            state = self._decode_segment(state, cut)
            state, tokens = self._commit(state, shared_tokens(state.paths))
            new += tokens
        if ended:
            row = max(range(len(state.paths)), key=lambda n: self._final_score(state.paths[n]))
            state = replace(state, paths=(state.paths[row],), cache=state.cache.select([row]))
            state = replace(state, abstractions=state.abstractions.select([row]))
            state, tokens = self._commit(state, len(state.paths[0].tokens))
            new += tokens
        return state, new

    @staticmethod
    def next_line(state: SegmentDecoderState) -> SegmentDecoderState:
        """Return the state after a stream that has ended, to begin another text with the vectors that follow."""
        return replace(
            SegmentDecoderState.begin(),
            hidden=state.hidden,
            vectors=state.vectors,
            first=state.first,
            cut=state.cut,
            committed=state.committed,
        )

    def decode(self, hidden_TD: Tensor, spikes: Sequence[int]) -> list[Spike]:
        """Return the tokens of a whole sound, from its vectors (T, D), at least one, and its CTC spikes."""
        state, tokens, count = SegmentDecoderState.begin(), [], hidden_TD.shape[0]
        for first in range(0, count, _BLOCK):
            stop = first + _BLOCK
            own = [spike for spike in spikes if first <= spike < stop]
            state, new = self.push(state, hidden_TD[first:stop], own, stop >= count)
            tokens += new
        return tokens

    def _commit(self, state: SegmentDecoderState, count: int) -> tuple[SegmentDecoderState, list[Spike]]:
        paths, new = committed(state.paths, count, self._beam.history, state.committed)
        return replace(state, paths=paths, committed=new[-1].vector if new else state.committed), new

    def _final_score(self, path: AcousticPath) -> float:
        return path.score + self._beam.end_bonus(path.text, path.states)

    def _decode_segment(self, state: SegmentDecoderState, cut: int) -> SegmentDecoderState:
        """Decode the segment that ends at `cut`, after each of the paths."""
        window = self._segmentation.window(state.cut, cut).clipped(state.vectors)
        hidden_PD = state.hidden[window.first - state.first : window.last - state.first]
        hidden_PD = self._embed_segments(hidden_PD, window.parts)
        segment = KeyValueCache(Layout.of_lengths([hidden_PD.shape[0]]), ((hidden_PD, hidden_PD),))
        branches, cache = self._search(state, segment, cut)
        parents = [each.parent for each in branches]
        same = parents == list(range(len(state.paths)))
        abstractions = state.abstractions if same else state.abstractions.select(parents)
        if self._abstraction is not None:
            lengths = [each.path.symbols - state.paths[each.parent].symbols for each in branches]
            tokens = Layout.of_lengths(lengths)
            symbols = np.concatenate(
                [each.path.recent[-length:] for each, length in zip(branches, lengths, strict=True)]
            )
            counts = np.array([state.paths[parent].symbols for parent in parents])
            x_UD = self._head.embed(symbols, np.repeat(counts, lengths) + 1 + tokens.positions)
            copies = _copies(segment, len(branches))
            pairs = self._abstraction.abstract(x_UD, tokens, copies.layers[0][0], copies.layout)
            abstractions = abstractions.extended(tokens, pairs).last(self._abstraction.max_tokens)
        # Drop the vectors that no later segment looks back on.
        first = max(state.first, cut + 1 - self._segmentation.back)
        return replace(
            state,
            paths=tuple(each.path for each in branches),
            cache=cache,
            abstractions=abstractions,
            cut=cut,
            spikes=tuple(spike for spike in state.spikes if spike > cut),
            hidden=state.hidden[first - state.first :],
            first=first,
        )

    def _search(
        self, state: SegmentDecoderState, segment: KeyValueCache, cut: int
    ) -> tuple[list[Branch], KeyValueCache]:
        """Return the paths through a segment, the best one first, and their self-attention cache."""
        copies = _copies(segment, len(state.paths))
        source_PD = copies.layers[0][0]
        if self._abstraction is not None:
            source_PD = self._abstraction.encode(source_PD, copies.layout, state.abstractions)
        sources = KeyValueCache(copies.layout, self._head.decoder.read(source_PD))
        live = [Branch(path, number, number) for number, path in enumerate(state.paths)]
        cache = state.cache
        ended: list[Branch] = []
        caches: list[KeyValueCache] = []  # of branches that ended, which `row` counts
        for number in range(MAX_TOKENS + 1):
            scores_NV, grown = self._step(live, sources, cache)
            options = list(ended)
            for row, (each, scores_V) in enumerate(zip(live, scores_NV, strict=True)):
                rooted, last = each._replace(row=row), number == MAX_TOKENS
                options += extensions(rooted, scores_V, self._end, cut, self._beam, self._kept, last)
            kept, live, before, ended = best(options, self._beam.width), [], ended, []
            for each in kept:
                if not each.ended:
                    live.append(each)
                elif each in before:
                    ended.append(each)
                else:
                    ended.append(each._replace(row=len(caches)))
                    caches.append(grown.select([each.row]))
            if not live:
                break
            cache = grown.select([each.row for each in live])
        branches = merged(ended, self._beam, cut)
        return branches, KeyValueCache.joined([caches[each.row] for each in branches])

    @property
    def by_beam(self) -> bool:
        """Whether it keeps several paths."""
        return self._beam.width > 1

    @property
    def _kept(self) -> int:
        """The number of symbols that a path remembers: those that its next ones depend on, and those of a segment."""
        return max(self._cached_tokens, MAX_TOKENS + 1)

    def _step(
        self, live: Sequence[Branch], sources: KeyValueCache, cache: KeyValueCache
    ) -> tuple[np.ndarray, KeyValueCache]:
        """Return the scores (N, V) of the next symbol of each branch, and the cache with its last symbol."""
        parents = [each.parent for each in live]
        if parents != list(range(sources.layout.sequences)):
            sources = sources.select(parents)
        inputs = np.array([each.path.recent[-1] if each.path.recent else self._begin for each in live])
        layout, counts = Layout.of_lengths([1] * len(live)), np.array([each.path.symbols for each in live])
        x_UD, cache = self._head.forward_cached(inputs, layout, Source(sources, layout), cache, counts)
        scores_NV = self._head.scores(x_UD)
        scores_NV[:, self._never] = -np.inf
        return scores_NV, cache.last(self._cached_tokens)


def _copies(segment: KeyValueCache, count: int) -> KeyValueCache:
    return segment if count == 1 else segment.select([0] * count)


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

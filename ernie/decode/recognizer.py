"""Recognition of sound streams: whole chunks go through the encoder, and their tokens are committed.

The result does not depend on how the sound is split into pieces: chunks are always cut at the same positions.

Legend: N streams, S samples of sound, F frames, M features of a frame, T vectors, D width, V vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import paddle

from ernie.audio.features import FeatureConfig, FeatureState, FeatureStream, Statistics
from ernie.audio.lengths import STRIDE, vector_count
from ernie.data.batch import Frames, Layout
from ernie.decode.ctc import LINE_END, Beam, Hypothesis, Ranked, Spike, greedy, stable_length
from ernie.decode.edges import Edges
from ernie.decode.stream import check_pieces, check_streams, common_model, strip_prefix, with_prefix
from ernie.decode.truncated_attention import SegmentDecoder, SegmentDecoderState
from ernie.errors import UserError
from ernie.kernels.precision import batch_invariant, to_numpy
from ernie.model.cache import KeyValueCache
from ernie.model.ernie import ErnieModel
from ernie.model.inference import evaluating, finite, identity
from ernie.model.speech import SpeechHead

_PIECE = 60.0  # seconds of a whole sound that are in memory as features at a time
_MOST_VECTORS = 2048  # that are encoded at a time, of all streams


@dataclass(frozen=True, eq=False)
class StreamState:
    """The state of one stream: the feature state, the `frames` (F, M) that later vectors still need, and the output.

    `count` vectors went through the encoder, and `last` is the CTC prediction at the last of them, a token or the
    blank.  `spikes` are the committed tokens but for the first, `forgotten` ones.  `decoder_state` is that of a segment
    decoder, `hypotheses` are those of a beam; without the first `trimmed` tokens, the committed ones are a prefix of
    every hypothesis.  `edges` tell where in the sound tokens begin and end.  CTC predicted nothing at the last `silent`
    vectors.  The line of text began after `line` committed tokens, at the vector `line_begin`, -1 if nothing was said.
    """

    feature_state: FeatureState
    frames: np.ndarray
    count: int
    last: int
    spikes: tuple[Spike, ...] = ()
    ended: bool = False
    decoder_state: SegmentDecoderState | None = None
    hypotheses: tuple[Hypothesis, ...] = ()
    trimmed: int = 0
    forgotten: int = 0
    edges: Edges = field(default_factory=Edges)
    silent: int = 0
    line: int = 0
    line_begin: int = -1

    @property
    def committed(self) -> int:
        """The number of committed tokens, forgotten ones included."""
        return self.forgotten + len(self.spikes)

    def since(self, count: int) -> tuple[Spike, ...]:
        """Return the committed tokens after the first `count`, none of which is forgotten."""
        assert count >= self.forgotten
        return self.spikes[count - self.forgotten :]

    def forget(self, count: int) -> StreamState:
        """Return the state without the first `count` committed tokens; the last one is kept."""
        more = min(count - self.forgotten, len(self.spikes) - 1)
        return replace(self, spikes=self.spikes[more:], forgotten=self.forgotten + more) if more > 0 else self

    def ready(self, chunk: int, most: int) -> int:
        """Return how many vectors can be computed now, at most `most` chunks: whole ones, and the rest of a sound."""
        repeated = self.count > 0  # the last vector, see `_encoder_input`
        whole = max(0, len(self.frames) // STRIDE - repeated) // chunk * chunk
        return min(most * chunk, vector_count(len(self.frames)) - repeated if self.ended else whole)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the whole state as arrays by name."""
        names = ("count", "last", "spikes", "ended", "forgotten", "silent", "line", "line_begin")
        fields = {name: getattr(self, name) for name in names}
        fields |= {"readings": self.hypotheses, "past": self.trimmed}
        own = {"told": np.array(json.dumps(fields)), "frames": self.frames} | self.edges.arrays()
        own |= with_prefix("sound", self.feature_state.arrays())
        return own if self.decoder_state is None else own | with_prefix("writing", self.decoder_state.arrays())

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> StreamState:
        """Restore a state from its `arrays`."""
        fields = json.loads(str(arrays["told"]))
        decoder_arrays = strip_prefix("writing", arrays)
        return cls(
            FeatureState.from_arrays(strip_prefix("sound", arrays)),
            arrays["frames"],
            spikes=tuple(Spike(*spike) for spike in fields.pop("spikes")),
            decoder_state=SegmentDecoderState.from_arrays(decoder_arrays) if decoder_arrays else None,
            hypotheses=tuple(map(Hypothesis.of_json, fields.pop("readings"))),
            trimmed=fields.pop("past", 0),
            edges=Edges.from_arrays(arrays),
            **fields,
        )


@dataclass(frozen=True, eq=False)
class RecognitionState:
    """The state of N streams: that of each, and the encoder's cache of the last chunks.

    `model` identifies the model that the state belongs to.
    """

    stream_states: tuple[StreamState, ...]
    cache: KeyValueCache
    model: str = ""

    @property
    def streams(self) -> int:
        """The number of streams."""
        return len(self.stream_states)

    def forget(self, counts: Sequence[int]) -> RecognitionState:
        """Return the state without the first committed tokens of each stream, so many: they take memory for nothing."""
        streams = zip(self.stream_states, counts, strict=True)
        return replace(self, stream_states=tuple(stream.forget(count) for stream, count in streams))

    def select(self, streams: Sequence[int]) -> RecognitionState:
        """Return the state of these streams only, in this order."""
        return RecognitionState(tuple(self.stream_states[n] for n in streams), self.cache.select(streams), self.model)

    def concat(self, others: Sequence[RecognitionState]) -> RecognitionState:
        """Concatenate the streams of this state and of others, in order."""
        states = [self, *others]
        stream_states = tuple(stream for state in states for stream in state.stream_states)
        cache = KeyValueCache.joined([state.cache for state in states])
        return RecognitionState(stream_states, cache, common_model(state.model for state in states))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the whole state as arrays by name."""
        own = {"streams": np.array(self.streams), "model": np.array(self.model)}
        own |= with_prefix("memory", self.cache.arrays())
        for number, stream in enumerate(self.stream_states):
            own |= with_prefix(str(number), stream.arrays())
        return own

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> RecognitionState:
        """Restore a state from its `arrays`."""
        numbers = range(int(arrays["streams"]))
        stream_states = tuple(StreamState.from_arrays(strip_prefix(str(number), arrays)) for number in numbers)
        cache = KeyValueCache.from_arrays(strip_prefix("memory", arrays))
        return cls(stream_states, cache, str(arrays.get("model", "")))


class Pauses(NamedTuple):
    """When a line of text ends: after a pause of `pause` vectors; after a quarter of that from `longest` vectors on.

    The rules are those of Kaldi's and WeNet's endpoint detection: vectors at which CTC predicts nothing are a pause.
    """

    pause: int
    longest: int

    def end_line(self, silent: int, said: int) -> bool:
        """Return whether a line of `said` vectors, the last `silent` of which are a pause, is over."""
        return silent >= (self.pause if said < self.longest else -(-self.pause // 4))


class Recognized(NamedTuple):
    """What is said in a whole sound: its tokens, and the frame at which the last of them ends.

    By a beam there are `alternatives`, the best one first: all tokens of each, and its score.
    """

    spikes: list[Spike]
    end: int
    alternatives: Ranked = []  # noqa: RUF012 - never changed


class TokenRecognizer:
    """Recognizes sound streams with an encoder trained on chunks of `chunk` vectors that see `before` chunks more.

    The output of a chunk is committed as soon as its frames are available: at most `chunk` vectors and three frames
    after the words were spoken.  With a `beam`, a token is committed once all hypotheses share it, or the sound is
    over.  With a `decoder`, CTC only cuts the sound into segments, and the decoder's output for a segment is committed
    as soon as its look-ahead is available.  Tokens in `never` are excluded from transcripts, such as those that mark
    the beginning and the end of a text.  With `pauses` LINE_END is committed after each line, and all that was said
    before it: the next line starts afresh, while the encoder goes on.
    """

    def __init__(
        self,
        ernie: ErnieModel,
        head: SpeechHead,
        config: FeatureConfig,
        statistics: Statistics | None = None,
        *,
        chunk: int,
        before: int,
        decoder: SegmentDecoder | None = None,
        beam: Beam | None = None,
        never: Sequence[int] = (),
        pauses: Pauses | None = None,
    ):
        self._pauses = pauses
        self._ernie, self._head, self._chunk, self._before = ernie, head, chunk, before
        self._encoder = ernie.encoder if head.recurrent is None else head.recurrent
        self._decoder, self._beam, self._never = decoder, beam, list(never)
        self._features, self._width, self._rate = FeatureStream(config, statistics), config.features, config.sample_rate

    def begin(self, streams: int = 1) -> RecognitionState:
        """Return the state of streams before their first sample."""
        check_streams(streams)
        stream = StreamState(
            FeatureState(),
            np.zeros((0, self._width), np.float32),
            0,
            self._head.blank,
            decoder_state=None if self._decoder is None else SegmentDecoderState.begin(),
            hypotheses=() if self._beam is None else (Hypothesis(),),
        )
        return RecognitionState((stream,) * streams, KeyValueCache.empty(streams), self._model)

    def _check(self, state: RecognitionState) -> None:
        if state.model:
            common_model([state.model, self._model])

    @cached_property
    def _model(self) -> str:
        # The same weights may also decode greedily: the state then has no hypotheses that a beam could extend.
        by_beam = self._beam is not None or (self._decoder is not None and self._decoder.by_beam)
        return identity(self._ernie, self._head) + (" by beam" if by_beam else "")

    def push(self, state: RecognitionState, pieces: Sequence[np.ndarray]) -> tuple[RecognitionState, list[list[Spike]]]:
        """Take more samples (S,) of each stream; return the tokens committed by now.

        Raises UserError for sound with more vectors than the encoder has positions, for a stream that is over, and for
        a state of another model.
        """
        self._check(state)
        stream_states = []
        for stream, piece in zip(state.stream_states, check_pieces(state, pieces), strict=True):
            if stream.ended and len(piece):
                raise UserError("the sound of this stream is over; begin another one")
            feature_state, more_FM = self._features.push(stream.feature_state, piece)
            frames = np.concatenate([stream.frames, more_FM])
            stream_states.append(replace(stream, feature_state=feature_state, frames=frames))
        return self._advance(state, stream_states)

    def finish(self, state: RecognitionState) -> tuple[RecognitionState, list[list[Spike]]]:
        """End all streams; return the rest of their tokens."""
        self._check(state)
        return self._advance(state, [replace(stream, ended=True) for stream in state.stream_states])

    def recognize(self, sounds: Sequence[np.ndarray]) -> list[Recognized]:
        """Return what is said in whole sounds (S,), which is the same as of streams, in every precision."""
        state = self.begin(len(sounds))
        spikes: list[list[Spike]] = [[] for _ in sounds]
        step = round(_PIECE * self._rate)
        for start in range(0, max(map(len, sounds)), step):
            state, new = self.push(state.forget(list(map(len, spikes))), [own[start : start + step] for own in sounds])
            spikes = [before + after for before, after in zip(spikes, new, strict=True)]
        state, new = self.finish(state)
        recognized = []
        for before, after, stream in zip(spikes, new, state.stream_states, strict=True):
            own, alternatives = before + after, []
            if stream.hypotheses:  # all of them have the tokens that were committed before the end
                best = len(stream.hypotheses[0].tokens)
                common = tuple(spike.token for spike in own[: len(own) - best])
                assert self._beam is not None
                ranked = self._beam.ranked(stream.hypotheses)
                alternatives = [((*common, *each.tokens), score) for each, score in ranked]
            recognized.append(Recognized(own, stream.edges.end, alternatives))
        return recognized

    def _advance(
        self, state: RecognitionState, stream_states: list[StreamState]
    ) -> tuple[RecognitionState, list[list[Spike]]]:
        before = [stream.committed for stream in stream_states]
        with evaluating(self._ernie), evaluating(self._head), batch_invariant():
            cache = state.cache
            most = max(1, _MOST_VECTORS // (self._chunk * len(stream_states)))
            while any(counts := [stream.ready(self._chunk, most) for stream in stream_states]):
                cache = self._process_chunks(stream_states, counts, cache)
            empty_TD = paddle.zeros([0, self._ernie.config.hidden_size])
            for n, stream in enumerate(stream_states):
                if stream.ended:
                    stream_states[n] = _placed(
                        self._finished(self._decode(stream, empty_TD, [], True)), stream.committed
                    )
        new = [list(stream.since(count)) for stream, count in zip(stream_states, before, strict=True)]
        return RecognitionState(tuple(stream_states), cache, state.model), new

    def _process_chunks(
        self, stream_states: list[StreamState], counts: list[int], cache: KeyValueCache
    ) -> KeyValueCache:
        """Process chunks of in all `counts` vectors of each stream, in place; return the encoder's cache."""
        layout = Layout.of_lengths(counts)
        x_TD = self._encoder_input(stream_states, counts)
        hidden_TD, cache = self._encoder.forward_chunks(x_TD, layout, cache, self._chunk, self._before * self._chunk)
        logits_TV = finite(to_numpy(self._head(hidden_TD)))
        logits_TV[:, self._never] = -np.inf
        for n in np.flatnonzero(layout.lengths):
            stream = stream_states[n]
            heard = stream.frames[STRIDE * (stream.count > 0) :][: STRIDE * counts[n]]
            loudness_F = self._features.loudness(heard)
            # Keep the last vector's frames, which are in the receptive field of the next one.
            frames = stream.frames[STRIDE * (counts[n] - (stream.count == 0)) :].copy()  # a view keeps all frames alive
            stream = replace(stream, frames=frames)
            for first in range(0, counts[n], self._chunk):
                last = min(first + self._chunk, counts[n])
                rows = slice(int(layout.offsets[n]) + first, int(layout.offsets[n]) + last)
                loudness_of_chunk = loudness_F[STRIDE * first : STRIDE * last]
                stream = self._after_chunk(stream, hidden_TD[rows], logits_TV[rows], loudness_of_chunk)
            stream_states[n] = stream
        return cache

    def _after_chunk(
        self, old: StreamState, hidden_TD: paddle.Tensor, scores_TV: np.ndarray, loudness_F: np.ndarray
    ) -> StreamState:
        """Return a stream after a chunk, given its encoder and CTC outputs and the loudness of its frames."""
        count = len(scores_TV)
        best_T = scores_TV.argmax(1)
        predicted = np.flatnonzero(best_T != self._head.blank)
        line_begin = old.line_begin
        if line_begin < 0 and len(predicted):
            line_begin = old.count + int(predicted[0])
        stream = replace(
            old,
            count=old.count + count,
            last=int(best_T[-1]),
            edges=old.edges.heard(loudness_F),
            silent=count - 1 - int(predicted[-1]) if len(predicted) else old.silent + count,
            line_begin=line_begin,
        )
        return self._with_line_end(_placed(self._extended(stream, old, scores_TV, hidden_TD), old.committed))

    def _extended(
        self, stream: StreamState, old: StreamState, scores_TV: np.ndarray, hidden_TD: paddle.Tensor
    ) -> StreamState:
        """Return a stream with the tokens of new vectors; `old` is its state before them."""
        if self._beam is not None:
            hypotheses = self._beam.extend(old.hypotheses, scores_TV, old.count)
            committed = _committed(replace(stream, hypotheses=hypotheses), stable := stable_length(hypotheses))
            hypotheses, trimmed = self._beam.trim(hypotheses, stable)
            return replace(committed, hypotheses=hypotheses, trimmed=old.trimmed + trimmed)
        spikes = greedy(scores_TV, self._head.blank, old.last, old.count)
        if self._decoder is not None:
            return self._decode(stream, hidden_TD, [spike.vector for spike in spikes], False)
        return replace(stream, spikes=(*old.spikes, *spikes)) if spikes else stream

    def _with_line_end(self, stream: StreamState) -> StreamState:
        """End the line, if there is one and a pause that is long enough."""
        said = stream.count - stream.line_begin if stream.line_begin >= 0 else 0
        if self._pauses is None or not said or not self._pauses.end_line(stream.silent, said):
            return stream
        empty_TD = paddle.zeros([0, self._ernie.config.hidden_size])
        rest = _placed(self._finished(self._decode(stream, empty_TD, [], True)), stream.committed)
        if rest.committed > stream.line:
            end = Spike(LINE_END, rest.count - 1, 1.0, rest.edges.count, rest.edges.end)
            rest = replace(rest, spikes=(*rest.spikes, end))
        decoder_state = None if rest.decoder_state is None else SegmentDecoder.next_line(rest.decoder_state)
        hypotheses = () if self._beam is None else (Hypothesis(),)
        return replace(
            rest,
            decoder_state=decoder_state,
            hypotheses=hypotheses,
            trimmed=rest.committed if self._beam is not None else rest.trimmed,
            line=rest.committed,
            line_begin=-1,
        )

    def _decode(self, stream: StreamState, hidden_TD: paddle.Tensor, spikes: Sequence[int], ended: bool) -> StreamState:
        """Push more vectors (T, D) of a stream into the segment decoder, if there is one."""
        if self._decoder is None or stream.decoder_state is None:
            return stream
        decoder_state, new = self._decoder.push(stream.decoder_state, hidden_TD, spikes, ended)
        return replace(stream, decoder_state=decoder_state, spikes=(*stream.spikes, *new) if new else stream.spikes)

    def _finished(self, stream: StreamState) -> StreamState:
        """Commit the best hypothesis of a stream that is over, if there is a beam."""
        if self._beam is None:
            return stream
        ranked = tuple(each for each, _ in self._beam.ranked(stream.hypotheses))
        return _committed(replace(stream, hypotheses=ranked), len(ranked[0].tokens))

    def _encoder_input(self, stream_states: Sequence[StreamState], counts: Sequence[int]) -> paddle.Tensor:
        """Return the next `counts` input vectors of each stream, concatenated (T, D), each chunk computed by itself."""
        frontend, positions = self._head.frontend, self._ernie.config.max_positions
        pieces, begins, firsts = [], [], []
        for stream, count in zip(stream_states, counts, strict=True):
            if frontend.period is None and stream.count + count > positions:
                raise UserError(f"the sound has more than {positions} vectors, as many as this model has positions for")
            for first in range(0, count, self._chunk):
                # The vector before the chunk is recomputed without its left context, then dropped.
                repeated = int(stream.count + first > 0)
                begin = STRIDE * (first - repeated + (stream.count > 0))
                end = begin + STRIDE * (repeated + min(self._chunk, count - first))
                pieces.append(stream.frames[begin:end])  # fewer at the end of a sound: the front end adds zeros
                begins.append(stream.count + first - repeated)
                firsts.append(repeated)
        frames = Frames(np.concatenate(pieces), Layout.of_lengths([len(piece) for piece in pieces]))
        x_TD, layout = frontend(frames, np.array(begins))
        rows = layout.positions >= np.repeat(firsts, layout.lengths)
        return paddle.gather(x_TD, paddle.to_tensor(np.flatnonzero(rows)))


def _committed(stream: StreamState, count: int) -> StreamState:
    """Commit the first `count` tokens of the best hypothesis."""
    best, done = stream.hypotheses[0], stream.committed - stream.trimmed
    if count <= done:
        return stream
    # Earlier tokens may have been committed at later vectors, from a hypothesis that is no longer the best.
    last = stream.spikes[-1].vector if stream.spikes else 0
    new = [spike._replace(vector=max(last, spike.vector)) for spike in best.spikes[done:count]]
    return replace(stream, spikes=(*stream.spikes, *new))


def _placed(stream: StreamState, count: int) -> StreamState:
    """Find where in the sound the tokens after the first `count` committed ones begin."""
    edges, spikes = stream.edges, []
    for spike in stream.since(count):
        edges, placed = edges.placed(spike)
        spikes.append(placed)
    kept = stream.spikes[: len(stream.spikes) - len(spikes)]
    return replace(stream, spikes=(*kept, *spikes), edges=edges) if spikes else stream

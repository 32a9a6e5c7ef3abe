"""Recognition of sound streams: whole chunks go through the encoder, and their tokens are committed.

The result does not depend on how the sound is split into pieces: chunks are always cut at the same positions.

Legend: N streams, S samples of sound, F frames, M features of a frame, T vectors, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import paddle

from ernie.audio.features import FeatureConfig, FeatureState, FeatureStream, Statistics
from ernie.audio.lengths import STRIDE, vector_count
from ernie.data.batch import Frames, Layout
from ernie.decode.ctc import LINE_END, Beam, Hypothesis, Ranked, Spike, greedy, stable_length
from ernie.decode.edges import Edges
from ernie.decode.states import BatchState, common_model
from ernie.decode.stream import StreamDecoder, check_pieces, check_state, check_streams, flags
from ernie.decode.truncated_attention import SegmentDecoder, SegmentDecoderState
from ernie.errors import NotFinite, UserError
from ernie.kernels.precision import batch_invariant, to_numpy
from ernie.model.cache import KeyValueCache
from ernie.model.ernie import ErnieModel
from ernie.model.inference import evaluating, finite, identity
from ernie.model.speech import SpeechHead
from ernie.outcome import Outcome

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
    The sound has `ended` when no more of it comes, and the stream is `closed` when nothing more will be committed.
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
    closed: bool = False

    @property
    def committed(self) -> int:
        """The number of committed tokens, forgotten ones included."""
        return self.forgotten + len(self.spikes)

    @property
    def likely(self) -> tuple[int, ...]:
        """The tokens after the committed ones that the best hypothesis of a beam has, which may still change."""
        return self.hypotheses[0].tokens[self.committed - self.trimmed :] if self.hypotheses else ()

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
        if self.closed:
            return 0
        whole = max(0, len(self.frames) // STRIDE - self._repeated) // chunk * chunk
        return min(most * chunk, self.waiting if self.ended else whole)

    def missing_frames(self, chunk: int) -> int:
        """Return how many frames more a whole chunk needs."""
        return max(0, STRIDE * (chunk + self._repeated) - len(self.frames))

    @property
    def waiting(self) -> int:
        """The number of vectors that the frames make which did not go through the encoder, the last one in part."""
        return vector_count(len(self.frames)) - self._repeated

    @property
    def _repeated(self) -> bool:
        """Whether the first frames are those of a vector that went through the encoder, see `_encoder_input`."""
        return self.count > 0

    def stopped(self) -> StreamState:
        """Return the state of a stream that is given up: it is over, and nothing more is committed."""
        return replace(self, frames=self.frames[:0], ended=True, closed=True)

    def commit(self, count: int) -> StreamState:
        """Return the state with the first `count` tokens of the best hypothesis committed."""
        best, done = self.hypotheses[0], self.committed - self.trimmed
        if count <= done:
            return self
        # Earlier tokens may have been committed at later vectors, from a hypothesis that is no longer the best.
        last = self.spikes[-1].vector if self.spikes else 0
        new = [spike._replace(vector=max(last, spike.vector)) for spike in best.spikes[done:count]]
        return replace(self, spikes=(*self.spikes, *new))


@dataclass(frozen=True, eq=False)
class RecognitionState(BatchState):
    """The state of N streams: that of each, and the encoder's cache of the last chunks.

    `model` identifies the model that the state belongs to.
    """

    stream_states: tuple[StreamState, ...]
    cache: KeyValueCache
    model: str = ""

    def forget(self, counts: Sequence[int]) -> RecognitionState:
        """Return the state without these numbers of the first committed tokens of each stream, to save memory."""
        streams = zip(self.stream_states, counts, strict=True)
        return replace(self, stream_states=tuple(stream.forget(count) for stream, count in streams))


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


class TokenRecognizer(StreamDecoder[RecognitionState, np.ndarray, list[Spike]]):
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
        self._encoder = head.encoder(ernie)
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
        check_state(state, RecognitionState)
        if state.model:
            common_model([state.model, self._model])

    @cached_property
    def _model(self) -> str:
        # The same weights may also decode greedily: the state then has no hypotheses that a beam could extend.
        by_beam = self._beam is not None or (self._decoder is not None and self._decoder.by_beam)
        return identity(self._ernie, self._head) + (" by beam" if by_beam else "")

    def accept(
        self, state: RecognitionState, pieces: Sequence[np.ndarray | None]
    ) -> tuple[RecognitionState, list[UserError | None]]:
        """Take more samples (S,) of each stream.

        Sound with more vectors than the encoder has positions gives an error, and so does sound for a stream that is
        over.
        """
        self._check(state)
        streams, errors = list(state.stream_states), list[UserError | None]([None] * state.streams)
        given = {n: piece for n, piece in enumerate(check_pieces(state, pieces)) if piece is not None}
        found = self._features.push_each([streams[n].feature_state for n in given], list(given.values()))
        for (n, piece), (feature_state, more_FM) in zip(given.items(), found, strict=True):
            frames = np.concatenate([streams[n].frames, more_FM])
            heard = replace(streams[n], feature_state=feature_state, frames=frames)
            if problem := self._problem(streams[n], heard, piece):
                errors[n] = UserError(problem, stream=n)
            else:
                streams[n] = heard
        return replace(state, stream_states=tuple(streams)), errors

    def end(self, state: RecognitionState, streams: Sequence[bool] | None = None) -> RecognitionState:
        """End the sound of these streams, by default of all."""
        self._check(state)
        each = zip(state.stream_states, flags(state, streams), strict=True)
        return replace(state, stream_states=tuple(replace(own, ended=True) if ends else own for own, ends in each))

    def pending(self, state: RecognitionState) -> list[bool]:
        """Return which streams have a whole chunk of vectors, or the rest of a sound that is over."""
        check_state(state, RecognitionState)
        return [
            not stream.closed and (stream.ended or stream.ready(self._chunk, 1) > 0) for stream in state.stream_states
        ]

    def missing(self, state: RecognitionState) -> list[int]:
        """Return how many samples each stream lacks before it has a whole chunk of vectors."""
        check_state(state, RecognitionState)
        return [
            self._features.missing(own.feature_state, own.missing_frames(self._chunk)) for own in state.stream_states
        ]

    def joined(self, outputs: Sequence[list[Spike]]) -> list[Spike]:
        """Return consecutive outputs of a stream as one."""
        return [spike for output in outputs for spike in output]

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

    def _problem(self, before: StreamState, heard: StreamState, piece: np.ndarray) -> str:
        """Return why a stream cannot take a piece of sound, "" if it can."""
        if before.ended:
            return "the sound of this stream is over; begin another one" if len(piece) else ""
        positions = self._ernie.config.max_positions
        if self._head.frontend.period is None and heard.count + heard.waiting > positions:
            return f"the sound has more than {positions} vectors, as many as this model has positions for"
        return ""

    @contextmanager
    def context(self) -> Iterator[None]:
        with evaluating(self._ernie), evaluating(self._head), batch_invariant():
            yield

    def advance(self, state: RecognitionState, most: int | None) -> tuple[RecognitionState, list[Outcome[list[Spike]]]]:
        """Process at most so many chunks of each stream, and commit the rest of those whose sound is over."""
        self._check(state)
        most = max(1, _MOST_VECTORS // (self._chunk * state.streams)) if most is None else most
        counts = [stream.ready(self._chunk, most) for stream in state.stream_states]
        outputs, cache = self._encoded(state, counts) if any(counts) else ([None] * state.streams, state.cache)
        loudness = self._loudness(state.stream_states, counts)
        outcomes, streams = [], []
        for n, (before, output) in enumerate(zip(state.stream_states, outputs, strict=True)):
            try:
                after = before if output is None else self._after_chunks(before, *output, loudness[n])
                if after.ended and not after.closed and not after.ready(self._chunk, 1):
                    after = replace(self._at_end(after), closed=True)
                outcomes.append(Outcome(list(after.since(before.committed))))
            except NotFinite as error:
                error.stream = n
                after = before.stopped()
                outcomes.append(Outcome(error=error))
            streams.append(after)
        return replace(state, stream_states=tuple(streams), cache=cache), outcomes

    def _encoded(
        self, state: RecognitionState, counts: list[int]
    ) -> tuple[list[tuple[paddle.Tensor, np.ndarray] | None], KeyValueCache]:
        """Encode `counts` vectors of each stream in chunks.

        Returns the vectors (T, D) and the CTC scores (T, V) of each, None for a stream without new ones, and the
        encoder's cache.
        """
        layout = Layout.of_lengths(counts)
        x_TD = self._encoder_input(state.stream_states, counts)
        before = self._before * self._chunk
        hidden_TD, cache = self._encoder.forward_chunks(x_TD, layout, state.cache, self._chunk, before)
        scores_TV = to_numpy(self._head(hidden_TD))
        rows = [slice(first, last) for first, last in pairwise(layout.offsets.tolist())]
        return [(hidden_TD[own], scores_TV[own]) if own.stop > own.start else None for own in rows], cache

    def _loudness(self, streams: Sequence[StreamState], counts: Sequence[int]) -> list[np.ndarray]:
        """Return the loudness (F,) of the frames of the next `counts` vectors of each stream."""
        each = [
            own.frames[STRIDE * (own.count > 0) :][: STRIDE * count] for own, count in zip(streams, counts, strict=True)
        ]
        ends = np.cumsum([len(frames_FM) for frames_FM in each])
        return np.split(self._features.loudness(np.concatenate(each)), ends[:-1])

    def _after_chunks(
        self, stream: StreamState, hidden_TD: paddle.Tensor, scores_TV: np.ndarray, loudness_F: np.ndarray
    ) -> StreamState:
        """Return a stream after its next chunks.  Raises NotFinite if the outputs of the model are not finite."""
        count = len(finite(scores_TV))
        scores_TV[:, self._never] = -np.inf
        # Keep the last vector's frames, which are in the receptive field of the next one.
        frames = stream.frames[STRIDE * (count - (stream.count == 0)) :].copy()  # a view keeps all frames alive
        stream = replace(stream, frames=frames)
        for first in range(0, count, self._chunk):
            own = slice(first, first + self._chunk)
            heard = loudness_F[STRIDE * first : STRIDE * (first + self._chunk)]
            stream = self._after_chunk(stream, hidden_TD[own], scores_TV[own], heard)
        return stream

    def _at_end(self, stream: StreamState) -> StreamState:
        """Return a stream with the rest of its tokens, or of its line."""
        empty_TD = paddle.zeros([0, self._ernie.config.hidden_size])
        return _placed(self._finished(self._decode(stream, empty_TD, [], True)), stream.committed)

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
            stable = stable_length(hypotheses)
            committed = replace(stream, hypotheses=hypotheses).commit(stable)
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
        rest = self._at_end(stream)
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
        return replace(stream, hypotheses=ranked).commit(len(ranked[0].tokens))

    def _encoder_input(self, stream_states: Sequence[StreamState], counts: Sequence[int]) -> paddle.Tensor:
        """Return the next `counts` input vectors of each stream, concatenated (T, D), each chunk computed by itself."""
        pieces, begins, firsts = [], [], []
        for stream, count in zip(stream_states, counts, strict=True):
            for first in range(0, count, self._chunk):
                # The vector before the chunk is recomputed without its left context, then dropped.
                repeated = int(stream.count + first > 0)
                begin = STRIDE * (first - repeated + (stream.count > 0))
                end = begin + STRIDE * (repeated + min(self._chunk, count - first))
                pieces.append(stream.frames[begin:end])  # fewer at the end of a sound: the front end adds zeros
                begins.append(stream.count + first - repeated)
                firsts.append(repeated)
        frames = Frames(np.concatenate(pieces), Layout.of_lengths([len(piece) for piece in pieces]))
        x_TD, layout = self._head.frontend(frames, np.array(begins))
        rows = layout.positions >= np.repeat(firsts, layout.lengths)
        return paddle.gather(x_TD, paddle.to_tensor(np.flatnonzero(rows)))


def _placed(stream: StreamState, count: int) -> StreamState:
    """Find where in the sound the tokens after the first `count` committed ones begin."""
    edges, spikes = stream.edges.placed(stream.since(count))
    kept = stream.spikes[: len(stream.spikes) - len(spikes)]
    return replace(stream, spikes=(*kept, *spikes), edges=edges) if spikes else stream

"""Recognition of sound that comes in pieces: whole chunks go through the encoder, and what they tell is committed.

It does not matter in which pieces the sound comes: chunks are always cut at the same places.

Legend: N streams, S samples of sound, F frames, M features of a frame, T vectors, D width, V vocabulary.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import paddle

from ernie.audio.features import FeatureConfig, FeatureState, FeatureStream, Statistics
from ernie.audio.lengths import STRIDE, vectors
from ernie.data.batch import Frames, Layout
from ernie.decode.ctc import Beam, Reading, Spike, greedy, sure
from ernie.decode.pieces import PieceWriter, Writing
from ernie.decode.stream import of_each, one_model, part, under
from ernie.errors import UserError
from ernie.kernels.precision import to_numpy
from ernie.model.ernie import ErnieModel
from ernie.model.inference import evaluating, finite, identity
from ernie.model.memory import Memory
from ernie.model.speech import SpeechHead


@dataclass(frozen=True, eq=False)
class Hearing:
    """How far a stream is: what is known of its `sound`, `frames` (F, M) that vectors to come look at, and so on.

    `count` vectors went through the encoder, and `last` is what the last of them told, a token or the blank.  `spikes`
    are the tokens that are committed; where a decoder writes them, `writing` is how far it is, and where several
    readings are followed, `readings` are these, all of which begin with what is committed but for the first `past`
    tokens.
    """

    sound: FeatureState
    frames: np.ndarray
    count: int
    last: int
    spikes: tuple[Spike, ...] = ()
    ended: bool = False
    writing: Writing | None = None
    readings: tuple[Reading, ...] = ()
    past: int = 0

    def ready(self, chunk: int) -> int:
        """How many vectors can be computed now: a chunk, or the rest of a sound that is over."""
        waiting = vectors(len(self.frames)) - (self.count > 0)
        if self.ended:
            return min(chunk, waiting)
        return chunk if len(self.frames) >= STRIDE * (chunk + (self.count > 0)) else 0

    def arrays(self) -> dict[str, np.ndarray]:
        """All that is known, as arrays by name."""
        told = {name: getattr(self, name) for name in ("count", "last", "spikes", "ended", "readings", "past")}
        found = {"told": np.array(json.dumps(told)), "frames": self.frames, **under("sound", self.sound.arrays())}
        return found if self.writing is None else found | under("writing", self.writing.arrays())

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Hearing:
        """That of which `arrays` gave these."""
        told = json.loads(str(arrays["told"]))
        spikes = tuple(Spike(*spike) for spike in told.pop("spikes"))
        readings = tuple(Reading(tuple(one), tuple(at), *rest) for one, at, *rest in told.pop("readings"))
        sound = FeatureState.of_arrays(part("sound", arrays))
        kept = part("writing", arrays)
        writing = Writing.of_arrays(kept) if kept else None
        return cls(sound, arrays["frames"], spikes=spikes, writing=writing, readings=readings, **told)


@dataclass(frozen=True, eq=False)
class Recognitions:
    """The state of N streams: how far each is, and what the encoder remembers of the last chunks.

    `model` tells the model that they are of from others.
    """

    hearing: tuple[Hearing, ...]
    memory: Memory
    model: str = ""

    @property
    def streams(self) -> int:
        """How many streams there are."""
        return len(self.hearing)

    def chosen(self, streams: Sequence[int]) -> Recognitions:
        """These streams only, in this order."""
        return Recognitions(tuple(self.hearing[n] for n in streams), self.memory.chosen(streams), self.model)

    def with_others(self, others: Sequence[Recognitions]) -> Recognitions:
        """The streams of this state and those of others, in their order."""
        every = [self, *others]
        hearing = tuple(one for state in every for one in state.hearing)
        memory = Memory.joined([state.memory for state in every])
        return Recognitions(hearing, memory, one_model(state.model for state in every))

    def arrays(self) -> dict[str, np.ndarray]:
        """All that is known, as arrays by name."""
        own = {"streams": np.array(self.streams), "model": np.array(self.model)}
        found = own | under("memory", self.memory.arrays())
        for number, one in enumerate(self.hearing):
            found |= under(str(number), one.arrays())
        return found

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Recognitions:
        """The state of which `arrays` gave these."""
        hearing = (Hearing.of_arrays(part(str(number), arrays)) for number in range(int(arrays["streams"])))
        return cls(tuple(hearing), Memory.of_arrays(part("memory", arrays)), str(arrays.get("model", "")))


class TokenRecognizer:
    """Recognizes streams of sound with an encoder that has learnt in chunks of `chunk` vectors, seeing `before` more.

    What a chunk tells is committed as soon as its frames are there: that is `chunk` vectors and three frames at most
    after it was said.  With a `beam` several readings are followed, and a token is committed once all of them have it,
    or the sound is over.  With a `writer` CTC only cuts the sound into pieces, and what the writer reads of each is
    committed as soon as the vectors that it looks ahead are there.  The tokens that are `never` told are in no
    transcript, such as those that begin and end a text.
    """

    def __init__(
        self,
        ernie: ErnieModel,
        head: SpeechHead,
        config: FeatureConfig,
        around: Statistics | None = None,
        *,
        chunk: int,
        before: int,
        writer: PieceWriter | None = None,
        beam: Beam | None = None,
        never: Sequence[int] = (),
    ):
        self._ernie, self._head, self._chunk, self._before = ernie, head, chunk, before
        self._encoder = ernie.encoder if head.recurrent is None else head.recurrent
        self._writer, self._beam, self._never = writer, beam, list(never)
        self._features, self._width = FeatureStream(config, around), config.features

    def begin(self, streams: int = 1) -> Recognitions:
        """The state of streams of which nothing was heard."""
        one = Hearing(
            FeatureState(),
            np.zeros((0, self._width), np.float32),
            0,
            self._head.blank,
            writing=None if self._writer is None else Writing.begin(),
            readings=() if self._beam is None else (Reading(),),
        )
        return Recognitions((one,) * streams, Memory.empty(streams), self._model)

    def _check(self, state: Recognitions) -> None:
        if state.model:
            one_model([state.model, self._model])

    @cached_property
    def _model(self) -> str:
        # The same weights may read greedily, too: such a state has no readings that a beam could follow.
        return identity(self._ernie, self._head) + (" by beam" if self._beam is not None else "")

    def push(self, state: Recognitions, pieces: Sequence[np.ndarray]) -> tuple[Recognitions, list[list[Spike]]]:
        """More samples (S,) of each stream; the tokens that they tell.

        Raises UserError for sound with more vectors than the encoder has positions, for a stream that is over, and for
        a state of another model.
        """
        self._check(state)
        hearing = []
        for one, piece in zip(state.hearing, of_each(state, pieces), strict=True):
            if one.ended and len(piece):
                raise UserError("the sound of this stream is over; begin another one")
            sound, more_FM = self._features.push(one.sound, piece)
            hearing.append(replace(one, sound=sound, frames=np.concatenate([one.frames, more_FM])))
        return self._go_on(state, hearing)

    def finish(self, state: Recognitions) -> tuple[Recognitions, list[list[Spike]]]:
        """All sounds are over; the rest of what they tell."""
        self._check(state)
        return self._go_on(state, [replace(one, ended=True) for one in state.hearing])

    def _go_on(self, state: Recognitions, hearing: list[Hearing]) -> tuple[Recognitions, list[list[Spike]]]:
        before = [len(one.spikes) for one in hearing]
        with evaluating(self._ernie), evaluating(self._head):
            memory = state.memory
            while any(counts := [one.ready(self._chunk) for one in hearing]):
                memory = self._hear(hearing, counts, memory)
            nothing = paddle.zeros([0, self._ernie.config.hidden_size])
            hearing = [self._written(one, nothing, [], True) if one.ended else one for one in hearing]
            if self._beam is not None:  # the best reading of a sound that is over is the one that counts
                hearing = [_ended(one, self._beam.best(one.readings)) if one.ended else one for one in hearing]
        new = [list(one.spikes[n:]) for one, n in zip(hearing, before, strict=True)]
        return Recognitions(tuple(hearing), memory, state.model), new

    def _hear(self, hearing: list[Hearing], counts: list[int], memory: Memory) -> Memory:
        """A chunk of each stream that has one, of `counts` vectors."""
        layout = Layout.of_lengths(counts)
        streams = np.flatnonzero(layout.lengths)
        x_TD = self._vectors([hearing[n] for n in streams], layout.lengths[streams])
        hidden_TD, memory = self._encoder.go_on(x_TD, layout, memory, together=True)
        logits_TV = finite(to_numpy(self._head(hidden_TD)))
        logits_TV[:, self._never] = -np.inf
        for n in streams:
            one, count = hearing[n], counts[n]
            scores_TV = logits_TV[layout.offsets[n] : layout.offsets[n + 1]]
            # The last vector's frames stay, since those of the next one reach back into them.
            frames = one.frames[STRIDE * (count - (one.count == 0)) :].copy()  # no view, which would keep them all
            last = int(scores_TV[-1].argmax())
            heard = replace(one, frames=frames, count=one.count + count, last=last)
            if self._beam is not None:
                readings = self._beam.go_on(one.readings, scores_TV, one.count)
                committed = _committed(replace(heard, readings=readings), count_sure := sure(readings))
                readings, past = self._beam.without_past(readings, count_sure)
                hearing[n] = replace(committed, readings=readings, past=one.past + past)
                continue
            spikes = greedy(scores_TV, self._head.blank, one.last, one.count)
            if self._writer is None:
                hearing[n] = replace(heard, spikes=(*one.spikes, *spikes))
            else:
                own_TD = hidden_TD[int(layout.offsets[n]) : int(layout.offsets[n + 1])]
                hearing[n] = self._written(heard, own_TD, [spike.vector for spike in spikes], False)
        # Of a recurrent encoder the memory is one state, whatever was before.
        return memory if self._head.recurrent is not None else memory.last(self._before * self._chunk)

    def _written(self, one: Hearing, hidden_TD: paddle.Tensor, spikes: Sequence[int], ended: bool) -> Hearing:
        """A stream after the writer has read more vectors (T, D) of it, where there is a writer."""
        if self._writer is None or one.writing is None:
            return one
        writing, new = self._writer.go_on(one.writing, hidden_TD, spikes, ended)
        return replace(one, writing=writing, spikes=(*one.spikes, *new))

    def _vectors(self, hearing: Sequence[Hearing], counts: np.ndarray) -> paddle.Tensor:
        """What the encoder gets of these streams (T, D), so many vectors of each."""
        frontend, positions = self._head.frontend, self._ernie.config.max_positions
        pieces, firsts = [], []
        for one, count in zip(hearing, counts, strict=True):
            if frontend.period is None and one.count + count > positions:
                raise UserError(f"the sound has more than {positions} vectors, as many as this model has positions for")
            again = one.count > 0  # the vector before, which lacks the frames before it, is computed and left out
            # Of a sound that is over the last chunk has all that is left, and silence behind it.
            rest = one.ended and count == vectors(len(one.frames)) - again
            pieces.append(one.frames if rest else one.frames[: STRIDE * (count + again)])
            firsts.append(int(again))
        frames = Frames(np.concatenate(pieces), Layout.of_lengths([len(piece) for piece in pieces]))
        begins = np.array([one.count for one in hearing]) - firsts
        x_TD, layout = frontend(frames, begins)
        rows = layout.positions >= np.repeat(firsts, layout.lengths)
        return paddle.gather(x_TD, paddle.to_tensor(np.flatnonzero(rows)))


def _ended(one: Hearing, best: Reading) -> Hearing:
    """A stream that is over, this being what was read."""
    return _committed(replace(one, readings=(best,)), len(best.tokens))


def _committed(one: Hearing, count: int) -> Hearing:
    """A stream of whose readings so many tokens are committed: as the best of them has them."""
    best, done = one.readings[0], len(one.spikes) - one.past
    new = zip(best.tokens[done:count], best.vectors[done:count], strict=True)
    # What was committed before may have been read at later vectors, by a reading that is no longer the best.
    last = one.spikes[-1].vector if one.spikes else 0
    return replace(one, spikes=(*one.spikes, *(Spike(token, max(last, vector), 1.0) for token, vector in new)))

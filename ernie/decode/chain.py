"""Chained decoders: each takes the committed output of the one before, as in speech translation."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ernie.decode.states import FIELDS, BatchState, restore, strip_prefix
from ernie.decode.stream import (
    In,
    Out,
    Stream,
    StreamDecoder,
    check_decoder,
    check_pieces,
    check_state,
    flags,
    restorable,
)
from ernie.errors import UserError
from ernie.outcome import Note, Outcome


@dataclass(frozen=True, eq=False)
class ChainState(BatchState):
    """The state of some streams: those of all decoders, in order.

    `ended` counts the decoders of each stream whose input is over.  A stream has `failed` if one of its decoders has.
    """

    states: tuple[Any, ...]
    ended: tuple[int, ...]
    failed: tuple[bool, ...]


class Chain(StreamDecoder[ChainState, In, Out]):
    """Several decoders as one: each takes what the one before commits.

    A step advances every decoder by one of its own steps, each in the precision of its model.
    """

    def __init__(self, *decoders: StreamDecoder[Any, Any, Any]):
        if not decoders:
            raise UserError("a chain needs at least one decoder")
        for decoder in decoders:
            check_decoder(decoder)
        self._decoders = decoders

    def begin(self, streams: int = 1) -> ChainState:
        """Return the state of streams before any input."""
        states = tuple(decoder.begin(streams) for decoder in self._decoders)
        return ChainState(states, (0,) * streams, (False,) * streams)

    def accept(self, state: ChainState, pieces: Sequence[In | None]) -> tuple[ChainState, list[UserError | None]]:
        """Take more input of each stream, as the first decoder takes it; a stream that has failed takes no more."""
        self._check(state)
        failed = [
            UserError("this stream has failed; begin another one", stream=n) if failed and piece is not None else None
            for n, (piece, failed) in enumerate(zip(check_pieces(state, pieces), state.failed, strict=True))
        ]
        taken = [None if error else piece for piece, error in zip(pieces, failed, strict=True)]
        first, errors = self._decoders[0].accept(state.states[0], taken)
        state = replace(state, states=(first, *state.states[1:]))
        return state, [own or other for own, other in zip(failed, errors, strict=True)]

    def end(self, state: ChainState, streams: Sequence[bool] | None = None) -> ChainState:
        """End the input of these streams, by default of all; each decoder ends once the one before has no more."""
        self._check(state)
        ends = flags(state, streams)
        first = self._decoders[0].end(state.states[0], ends)
        ended = tuple(max(before, int(own)) for before, own in zip(state.ended, ends, strict=True))
        return replace(state, states=(first, *state.states[1:]), ended=ended)

    def pending(self, state: ChainState) -> list[bool]:
        """Return which streams have something to compute in one of the decoders, or an end to be passed on."""
        self._check(state)
        each = zip(*(decoder.pending(own) for decoder, own in self._pairs(state)), strict=True)
        last = len(self._decoders)
        return [
            not failed and (any(own) or 0 < ended < last)
            for own, ended, failed in zip(each, state.ended, state.failed, strict=True)
        ]

    def missing(self, state: ChainState) -> list[int]:
        """Return how much input each stream lacks before the first decoder has something to compute."""
        self._check(state)
        return self._decoders[0].missing(state.states[0])

    def advance(self, state: ChainState, most: int | None) -> tuple[ChainState, list[Outcome[Out]]]:
        """Advance each decoder by a step, and pass on what it commits; return what the last one commits."""
        self._check(state)
        streams, states, ended = range(state.streams), list[Any](), list(state.ended)
        notes = [list[Note]() for _ in streams]
        errors: list[UserError | None] = [None] * state.streams
        outputs: list[Any] = [None] * state.streams
        waiting = [True] * state.streams  # whether the decoder before may still commit something
        for position, (decoder, own) in enumerate(self._pairs(state)):
            if position:
                pieces = [None if ended[n] > position else output for n, output in enumerate(outputs)]
                own, refused = decoder.accept(own, pieces)
                errors = [error or other for error, other in zip(errors, refused, strict=True)]
                over = [ended[n] == position and not waiting[n] for n in streams]
                own = decoder.end(own, over) if any(over) else own
                ended = [position + 1 if over[n] else ended[n] for n in streams]
            waiting = decoder.pending(own)
            if any(waiting):
                own, outcomes = decoder.step(own, most)
                waiting = decoder.pending(own)
            else:  # a server steps all the time, and a step prepares the model even for nothing
                outcomes = [Outcome(decoder.joined([]))] * state.streams
            errors = [error or outcome.error for error, outcome in zip(errors, outcomes, strict=True)]
            for noted, outcome in zip(notes, outcomes, strict=True):
                noted += outcome.notes
            outputs = [
                outcome.value if error is None else None for outcome, error in zip(outcomes, errors, strict=True)
            ]
            states.append(own)
        for n, has_failed in enumerate(state.failed):
            if has_failed:  # what a decoder still makes of its input is nobody's
                errors[n], notes[n], outputs[n] = None, [], None
        failed = tuple(before or error is not None for before, error in zip(state.failed, errors, strict=True))
        empty = self.joined([])
        return ChainState(tuple(states), tuple(ended), failed), [
            Outcome(error=error, notes=tuple(noted))
            if error is not None
            else Outcome(empty if output is None else output, notes=tuple(noted))
            for output, error, noted in zip(outputs, errors, notes, strict=True)
        ]

    def joined(self, outputs: Sequence[Out]) -> Out:
        """Return consecutive outputs of a stream as one."""
        whole: Out = self._decoders[-1].joined(outputs)
        return whole

    def from_arrays(self, arrays: Mapping[str, np.ndarray]) -> ChainState:
        """Restore a state from `ChainState.arrays`.  Raises UserError for that of a longer or a shorter chain."""
        former = FIELDS not in arrays  # written by a version whose chains saved nothing but their decoders' states
        start = "" if former else "states/"
        numbers = {key.removeprefix(start).partition("/")[0] for key in arrays if key.startswith(start) and "/" in key}
        self._check_length(len(numbers))
        states = tuple(
            restorable(decoder).from_arrays(strip_prefix(f"{start}{n}", arrays))
            for n, decoder in enumerate(self._decoders)
        )
        if former:
            streams = states[0].streams
            return ChainState(states, (0,) * streams, (False,) * streams)
        return restore(ChainState, arrays, states=states)

    def _pairs(self, state: ChainState) -> Iterator[tuple[StreamDecoder[Any, Any, Any], Any]]:
        return zip(self._decoders, state.states, strict=True)

    def _check(self, state: ChainState) -> None:
        check_state(state, ChainState)
        self._check_length(len(state.states))

    def _check_length(self, decoders: int) -> None:
        if decoders != len(self._decoders):
            raise UserError(f"this state is of a chain of {decoders}, and this one has {len(self._decoders)}")


class Moment(NamedTuple):
    """A piece of output: how much of the input had arrived (`heard`), and the total computing time in seconds."""

    output: Any
    heard: float
    computed: float


def timed(decoder: StreamDecoder[Any, Any, Any], pieces: Iterable[Any], sizes: Iterable[float]) -> list[Moment]:
    """Decode one stream and record when its output comes; `sizes` are those of the pieces, in the unit of `heard`."""
    stream: Stream[Any, Any, Any] = Stream(decoder)
    heard = computed = 0.0
    moments = []
    for piece, size in zip(pieces, sizes, strict=True):
        start = time.perf_counter()
        output = stream.push(piece)
        heard, computed = heard + size, computed + time.perf_counter() - start
        if len(output):
            moments.append(Moment(output, heard, computed))
    start = time.perf_counter()
    output = stream.finish()
    if len(output):
        moments.append(Moment(output, heard, computed + time.perf_counter() - start))
    return moments

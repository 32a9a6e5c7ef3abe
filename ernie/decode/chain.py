"""Chained decoders: each takes the committed output of the one before, as in speech translation."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple

import numpy as np

from ernie.decode.states import strip_prefix, with_prefix
from ernie.decode.stream import (
    In,
    Out,
    PushDecoder,
    Stream,
    check_decoder,
    check_state,
    restorable,
)
from ernie.errors import UserError


@dataclass(frozen=True, eq=False)
class ChainState:
    """The states of all decoders, for some streams."""

    states: tuple[Any, ...]

    @property
    def streams(self) -> int:
        """The number of streams."""
        return self.states[0].streams

    def select(self, streams: Sequence[int]) -> ChainState:
        """Return the state of these streams only, in this order."""
        return ChainState(tuple(state.select(streams) for state in self.states))

    def concat(self, others: Sequence[ChainState]) -> ChainState:
        """Concatenate the streams of this state and of others, in order."""
        joined = (own.concat([other.states[n] for other in others]) for n, own in enumerate(self.states))
        return ChainState(tuple(joined))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the whole state as arrays by name, each decoder's under its number."""
        return {
            key: value
            for n, state in enumerate(self.states)
            for key, value in with_prefix(str(n), state.arrays()).items()
        }


class Chain(Generic[In, Out]):
    """Several decoders as one: what is pushed goes through all of them."""

    def __init__(self, *decoders: PushDecoder[Any, Any, Any]):
        if not decoders:
            raise UserError("a chain needs at least one decoder")
        for decoder in decoders:
            check_decoder(decoder)
        self._decoders = decoders

    def begin(self, streams: int = 1) -> ChainState:
        """Return the state of streams before any input."""
        return ChainState(tuple(decoder.begin(streams) for decoder in self._decoders))

    def push(self, state: ChainState, pieces: Sequence[In]) -> tuple[ChainState, list[Out]]:
        """Take more input of each stream; return what the last decoder commits."""
        self._check(state)
        outputs: list[Any] = list(pieces)
        states = []
        for decoder, own in zip(self._decoders, state.states, strict=True):
            after, outputs = decoder.push(own, outputs)
            states.append(after)
        return ChainState(tuple(states)), outputs

    def finish(self, state: ChainState) -> tuple[ChainState, list[Out]]:
        """End all streams: each decoder gets the rest of the one before, and then finishes too."""
        self._check(state)
        states, outputs = [], None
        for decoder, own in zip(self._decoders, state.states, strict=True):
            pushed: list[Any] = []
            if outputs is not None:
                own, pushed = decoder.push(own, outputs)
            own, rest = decoder.finish(own)
            outputs = [_joined(*parts) for parts in zip(pushed, rest, strict=True)] if pushed else rest
            states.append(own)
        assert outputs is not None
        return ChainState(tuple(states)), outputs

    def _check(self, state: ChainState) -> None:
        check_state(state, ChainState)
        if len(state.states) != len(self._decoders):
            raise UserError(f"this state is of a chain of {len(state.states)}, and this one has {len(self._decoders)}")

    def from_arrays(self, arrays: Mapping[str, np.ndarray]) -> ChainState:
        """Restore a state from `ChainState.arrays`."""
        kinds = map(restorable, self._decoders)
        return ChainState(tuple(kind.from_arrays(strip_prefix(str(n), arrays)) for n, kind in enumerate(kinds)))


class Moment(NamedTuple):
    """A piece of output: how much of the input had arrived (`heard`), and the total computing time in seconds."""

    output: Any
    heard: float
    computed: float


def timed(decoder: PushDecoder[Any, Any, Any], pieces: Iterable[Any], sizes: Iterable[float]) -> list[Moment]:
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


def _joined(first: Any, rest: Any) -> Any:
    return np.concatenate([first, rest]) if isinstance(first, np.ndarray) else first + rest

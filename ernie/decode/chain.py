"""Decoders one behind the other: what one commits the next one takes, as in speech translation."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple

import numpy as np

from ernie.decode.stream import In, Out, Stream, StreamDecoder, part, under


@dataclass(frozen=True, eq=False)
class Chained:
    """The state of some streams: that of each decoder."""

    states: tuple[Any, ...]

    @property
    def streams(self) -> int:
        """How many streams there are."""
        return self.states[0].streams

    def chosen(self, streams: Sequence[int]) -> Chained:
        """These streams only, in this order."""
        return Chained(tuple(state.chosen(streams) for state in self.states))

    def with_others(self, others: Sequence[Chained]) -> Chained:
        """The streams of this state and those of others, in their order."""
        joined = (own.with_others([other.states[n] for other in others]) for n, own in enumerate(self.states))
        return Chained(tuple(joined))

    def arrays(self) -> dict[str, np.ndarray]:
        """All that is known, as arrays by name; each decoder's own under its number."""
        return {
            key: value for n, state in enumerate(self.states) for key, value in under(str(n), state.arrays()).items()
        }


class Chain(Generic[In, Out]):
    """Decoders as one, under the contract of each: what is pushed goes through all of them.

    `kinds` are the classes of their states, by which `of_arrays` makes a state of arrays again; without them it cannot.
    """

    def __init__(self, *decoders: StreamDecoder[Any, Any, Any], kinds: Sequence[type[Any]] = ()):
        self._decoders, self._kinds = decoders, tuple(kinds)

    def begin(self, streams: int = 1) -> Chained:
        """The state of streams of which nothing has come yet."""
        return Chained(tuple(decoder.begin(streams) for decoder in self._decoders))

    def push(self, state: Chained, pieces: Sequence[In]) -> tuple[Chained, list[Out]]:
        """More input of each stream; what the last decoder commits now."""
        given: list[Any] = list(pieces)
        states = []
        for decoder, own in zip(self._decoders, state.states, strict=True):
            after, given = decoder.push(own, given)
            states.append(after)
        return Chained(tuple(states)), given

    def finish(self, state: Chained) -> tuple[Chained, list[Out]]:
        """All input is over: each decoder gets the rest of the one before, and then is over too."""
        states, given = [], None
        for decoder, own in zip(self._decoders, state.states, strict=True):
            first: list[Any] = []
            if given is not None:
                own, first = decoder.push(own, given)
            own, rest = decoder.finish(own)
            given = [_joined(*both) for both in zip(first, rest, strict=True)] if first else rest
            states.append(own)
        assert given is not None
        return Chained(tuple(states)), given

    def of_arrays(self, arrays: Mapping[str, np.ndarray]) -> Chained:
        """The state of which `Chained.arrays` gave these, so that `load_state` takes a chain as it takes a kind."""
        if len(self._kinds) != len(self._decoders):
            raise ValueError("a chain goes on from a file only if it is told the kinds of its decoders' states")
        kinds = self._kinds
        return Chained(tuple(kind.of_arrays(part(str(n), arrays)) for n, kind in enumerate(kinds)))


class Moment(NamedTuple):
    """A piece of output: how much of the input was there (`heard`), and how many seconds all computing had taken."""

    output: Any
    heard: float
    computed: float


def timed(decoder: StreamDecoder[Any, Any, Any], pieces: Iterable[Any], sizes: Iterable[float]) -> list[Moment]:
    """What comes out of one stream and when; `sizes` are those of the pieces, in the unit that `heard` is to have."""
    stream: Stream[Any, Any, Any] = Stream(decoder)
    heard = computed = 0.0
    found = []
    for piece, size in zip(pieces, sizes, strict=True):
        began = time.perf_counter()
        output = stream.push(piece)
        heard, computed = heard + size, computed + time.perf_counter() - began
        if len(output):
            found.append(Moment(output, heard, computed))
    began = time.perf_counter()
    output = stream.finish()
    if len(output):
        found.append(Moment(output, heard, computed + time.perf_counter() - began))
    return found


def _joined(first: Any, rest: Any) -> Any:
    return np.concatenate([first, rest]) if isinstance(first, np.ndarray) else first + rest

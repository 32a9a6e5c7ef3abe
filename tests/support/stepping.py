"""Streams that are stepped together in any order, as a server steps them, to compare with each stream alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from hypothesis import strategies as st

from ernie.decode.stream import StreamDecoder, restorable

Decoder = StreamDecoder[Any, Any, Any]
# What is done with three streams, and with which of them.
actions = st.lists(st.tuples(st.sampled_from(["accept", "step", "step", "shuffle"]), st.integers(0, 2)), max_size=40)


def alone(decoder: Decoder, whole: Any) -> Any:
    """What push and finish give for a stream by itself."""
    state, (early,) = decoder.push(decoder.begin(), [whole])
    return decoder.joined([early, decoder.finish(state)[1][0]])


class Server:
    """Streams that are stepped together, and what each of them has got."""

    def __init__(self, decoder: Decoder, pieces: Sequence[Sequence[Any]]):
        self.decoder, self.waiting = decoder, list(map(list, pieces))
        self.outputs: list[Any] = [decoder.joined([]) for _ in pieces]
        self.ended = [False] * len(pieces)
        self.here: list[int] = []  # the streams of the state, in order
        self.state: Any = None

    def join(self, n: int) -> None:
        if n not in self.here:
            fresh = self.decoder.begin()
            self.state = fresh if self.state is None else self.state.concat([fresh])
            self.here.append(n)

    def accept(self, n: int) -> None:
        """Give a stream its next piece, and end it after the last one."""
        self.join(n)
        if self.waiting[n]:
            pieces = [self.waiting[n].pop(0) if other == n else None for other in self.here]
            self.state, errors = self.decoder.accept(self.state, pieces)
            assert errors == [None] * len(self.here)
        else:
            self.ended[n] = True
            self.state = self.decoder.end(self.state, [other == n for other in self.here])

    def step(self) -> bool:
        """Advance all streams by one step, if any can go on."""
        if self.state is None or not any(pending := self.decoder.pending(self.state)):
            return False
        self.state, outcomes = self.decoder.step(self.state)
        for n, was_pending, outcome in zip(self.here, pending, outcomes, strict=True):
            new = outcome.get()
            assert was_pending or not len(new)
            self.outputs[n] = self.decoder.joined([self.outputs[n], new])
        return True

    def shuffle(self, turn: int) -> None:
        """Take the state apart, and put it together in another order, some of it from saved arrays."""
        if self.state is not None:
            order = np.roll(np.arange(len(self.here)), turn).tolist()
            parts = [self.state.select([n]) for n in order]
            parts[0] = restorable(self.decoder).from_arrays(parts[0].arrays())
            self.state, self.here = parts[0].concat(parts[1:]), [self.here[n] for n in order]


def outputs(decoder: Decoder, pieces: Sequence[Sequence[Any]], calls: Sequence[tuple[str, int]]) -> list[Any]:
    """Return what three streams get that are given their pieces in this order of calls, and then the rest of them."""
    server = Server(decoder, pieces)
    for name, n in calls:
        if name == "step":
            server.step()
        else:
            getattr(server, name)(n)
    for n in range(len(pieces)):
        while not server.ended[n]:
            server.accept(n)
    while server.step():
        server.shuffle(1)
    return server.outputs

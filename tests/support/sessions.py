"""Sessions whose engine computes in the test's own thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from support.toys import tones
from support.trained import trained

from ernie.decode.states import BatchState
from ernie.decode.stream import StreamDecoder
from ernie.errors import UserError
from ernie.outcome import Outcome
from inference.recognizer import SpeechRecognizer
from inference.speaker import TextSpeaker
from inference.translator import TextTranslator
from serving.engine import Computed, Engine
from serving.saved_sessions import SessionFolder
from serving.sessions import Event, ServedStream, Session, SessionLimits, Sessions, serve_stream

SERVED: list[ServedStream] = []


@cache
def served(kind: str) -> ServedStream:
    """A stream of one of the toys' models: listen, translate, or speak.

    Of them all tests have the same, and so the same queues.
    """
    face: Any = {
        "listen": lambda: SpeechRecognizer(trained("streaming").model),
        "translate": lambda: TextTranslator(trained("translate").model),
        "speak": lambda: TextSpeaker(trained("synthesize").model),
    }[kind]()
    SERVED.append(stream := serve_stream(kind, face.streaming))
    return stream


def sound(words: Sequence[str], seed: int = 3) -> np.ndarray:
    """Spoken color words."""
    return np.array(tones(words, np.random.default_rng(seed))["array"], np.float32)


class Server:
    """Sessions, and an engine that computes when it is told to."""

    def __init__(self, limits: SessionLimits | None = None, folder: SessionFolder | None = None):
        for stream in SERVED:  # which may have steps that an earlier test left there
            for queue in stream.work.queues:
                queue.clear()
            stream.work.tokens[:] = [0, 0]
        self.engine = Engine(self._report)
        self.sessions = Sessions(self.engine, limits, folder)
        self.batches: list[int] = []  # their sizes

    def _report(self, computed: Computed) -> None:
        self.sessions.stepped(computed)
        for session in self.sessions.advanced(computed):
            session.notify()
        self.batches.append(len(computed.outcomes))

    def turn(self) -> bool:
        """Compute one batch; return whether there was one."""
        if not self.engine.waiting[0]:
            return False
        self.engine.turn()
        return True

    def run(self) -> None:
        """Compute until nothing waits."""
        while self.turn():
            pass


def told(session: Session) -> list[Event]:
    """Take everything that a session's client is to be told."""
    found = []
    while (event := session.take_event()) is not None:
        session.sent(event)
        found.append(event)
    return found


def output(events: Sequence[Event]) -> Any:
    """The output among some events, joined; an empty text if there is none."""
    found = [event.value for event in events if event.kind == "output"]
    return np.concatenate(found) if found and not isinstance(found[0], str) else "".join(found)


@dataclass(frozen=True)
class LoudState(BatchState):
    """The text of each stream that waits, and whether it is over."""

    waiting: tuple[str, ...]
    ended: tuple[bool, ...]


class Loud(StreamDecoder[LoudState, str, Any]):
    """Gives a piece of output for each character that it reads."""

    def __init__(self, piece: Any):
        self._piece = piece

    def begin(self, streams: int = 1) -> LoudState:
        return LoudState(("",) * streams, (False,) * streams)

    def accept(self, state: LoudState, pieces: Sequence[str | None]) -> tuple[LoudState, list[UserError | None]]:
        waiting = tuple(own + (piece or "") for own, piece in zip(state.waiting, pieces, strict=True))
        return replace(state, waiting=waiting), [None] * state.streams

    def end(self, state: LoudState, streams: Sequence[bool] | None = None) -> LoudState:
        ends = streams or [True] * state.streams
        return replace(state, ended=tuple(own or end for own, end in zip(state.ended, ends, strict=True)))

    def pending(self, state: LoudState) -> list[bool]:
        return [bool(own) for own in state.waiting]

    def advance(self, state: LoudState, most: int | None) -> tuple[LoudState, list[Outcome[Any]]]:
        outcomes = [Outcome(self._piece if own else self._piece[:0]) for own in state.waiting]
        return replace(state, waiting=tuple(own[1:] for own in state.waiting)), outcomes

    def joined(self, outputs: Sequence[Any]) -> Any:
        return self._piece[:0] if not outputs else output([Event("output", own) for own in outputs])

"""Sessions whose engine computes in the test's own thread."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from support.toys import tones
from support.trained import trained

from inference.recognizer import SpeechRecognizer
from inference.speaker import TextSpeaker
from inference.translator import TextTranslator
from serving.engine import Computed, Engine
from serving.saved_sessions import SessionFolder
from serving.sessions import Event, ServedStream, Session, SessionLimits, Sessions, serve_stream


@cache
def served(kind: str) -> ServedStream:
    """A stream of one of the toys' models: listen, translate, or speak."""
    face: Any = {
        "listen": lambda: SpeechRecognizer(trained("streaming").model),
        "translate": lambda: TextTranslator(trained("translate").model),
        "speak": lambda: TextSpeaker(trained("synthesize").model),
    }[kind]()
    return serve_stream(kind, face.streaming)


def sound(words: Sequence[str], seed: int = 3) -> np.ndarray:
    """Spoken color words."""
    return np.array(tones(words, np.random.default_rng(seed))["array"], np.float32)


class Server:
    """Sessions, and an engine that computes when it is told to."""

    def __init__(self, limits: SessionLimits | None = None, folder: SessionFolder | None = None):
        self.engine = Engine(self._report)
        self.sessions = Sessions(self.engine, limits, folder)
        self.batches: list[int] = []  # their sizes

    def _report(self, computed: Computed) -> None:
        self.sessions.stepped(computed)
        self.sessions.delivered(computed)
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

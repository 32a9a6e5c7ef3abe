"""When the words of a stream come out, without and with the time that computing takes."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from ernie.decode.stream import Stream, StreamDecoder


class Moments(NamedTuple):
    """The words that came out; for each the seconds of input there were by then, and the time at which it came."""

    words: list[str]
    heard: list[float]
    done: list[float]


def moments(decoder: StreamDecoder[Any, Any, Any], pieces: Iterable[tuple[Any, float]]) -> Moments:
    """Decode one stream of pieces that last so many seconds each, as if they came in time.

    A piece is there at its end, and its computing begins when that of the one before is over.
    """
    stream: Stream[Any, Any, Any] = Stream(decoder)
    heard = done = 0.0
    text = ""
    found = Moments([], [], [])
    for piece, seconds in (*pieces, (None, 0.0)):
        heard += seconds
        start = time.perf_counter()
        text += stream.finish() if piece is None else stream.push(piece)
        done = max(done, heard) + time.perf_counter() - start
        new = len(text.split()) - len(found.heard)
        found.heard.extend([heard] * new)
        found.done.extend([done] * new)
    found.words.extend(text.split())
    return found

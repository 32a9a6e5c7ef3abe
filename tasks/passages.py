"""Ways of cutting a document into stretches of whole sentences, which several objectives share."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ernie.data.document import Document


def stretches(document: Document, room: int) -> list[tuple[int, int]]:
    """Cut a document's tokens into stretches [start, stop) of at most `room` tokens, at sentence ends where possible.

    A sentence longer than `room` is cut inside.  Every token lies in exactly one stretch.
    """
    total, start, found = len(document.ids), 0, []
    while start < total:
        last = int(np.searchsorted(document.ends, start + room, side="right"))
        stop = int(document.ends[last - 1]) if last and document.ends[last - 1] > start else start + room
        found.append((start, min(stop, total)))
        start = found[-1][1]
    return found


def sentence_groups(document: Document, room: int) -> Iterator[tuple[int, int]]:
    """Consecutive sentences [first, last) of at most `room` tokens in sum; a longer sentence stands alone."""
    first = 0
    while first < len(document):
        start = int(document.ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(document.ends, start + room, side="right")))
        yield first, last
        first = last

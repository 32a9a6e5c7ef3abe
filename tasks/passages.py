"""Passages of documents, shared by several tasks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ernie.data.document import Document


def token_spans(document: Document, max_tokens: int) -> list[tuple[int, int]]:
    """Split a document's tokens into spans [start, stop) of at most `max_tokens`, at sentence ends where possible.

    A sentence longer than `max_tokens` is split.  Every token lies in exactly one span.
    """
    total, start, spans = len(document.ids), 0, []
    while start < total:
        last = int(np.searchsorted(document.ends, start + max_tokens, side="right"))
        stop = int(document.ends[last - 1]) if last and document.ends[last - 1] > start else start + max_tokens
        spans.append((start, min(stop, total)))
        start = spans[-1][1]
    return spans


def sentence_groups(document: Document, max_tokens: int) -> Iterator[tuple[int, int]]:
    """Yield groups of consecutive sentences [first, last) of at most `max_tokens` in total.

    A longer sentence is a group of its own.
    """
    first = 0
    while first < len(document):
        start = int(document.ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(document.ends, start + max_tokens, side="right")))
        yield first, last
        first = last


def common_length(shortest: int, rng: np.random.Generator) -> int:
    """Draw the number of tokens to which all candidates of a passage are cut: up to a quarter below the shortest.

    At the very length of the shortest passage, only that one would end with a sentence.  Which one it is depends on the
    label, so that the last token would give it away.
    """
    return int(rng.integers(max(1, 3 * shortest // 4), max(2, shortest)))

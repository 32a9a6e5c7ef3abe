"""The sentences of a corpus's documents as readable text, cut where words, phrases and entities begin and end.

Legend: n tokens of a sentence, g groups of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ernie.data.document import Document, Flag, Mark, Tokens
from ernie.text.scripts import NO_SPACES, THAI
from ernie.text.tokenizer import Tokenizer

_PHRASE = int(Flag.BEGINS_PHRASE | Flag.CONTINUES_PHRASE)
_ENTITY = int(Flag.BEGINS_ENTITY | Flag.CONTINUES_ENTITY)
_SPACELESS = re.compile(f"[{NO_SPACES}{THAI}]")
_CONTEXT = 8  # groups around others that decide how these are joined
_DECODED = 200  # groups: a longer sentence is decoded in parts


class Run(NamedTuple):
    """Consecutive text that is marked in one way, with the white space before it.

    `kinds` says what it is a part of (entity, phrase, word, unknown), `begins` what begins here.  A word is one of
    several tokens in a script without spaces; other words are where spaces are.  An unknown token stands for text that
    is lost.
    """

    text: str
    kinds: frozenset[str]
    begins: frozenset[str]


class Sentence(NamedTuple):
    """A sentence of a document and its marks."""

    runs: list[Run]
    marks: Mark


def sentences(document: Document, tokenizer: Tokenizer, most: int = 0) -> Iterator[Sentence]:
    """Yield the sentences of a document, the first `most` unless that is 0.

    They are as the tokens read: lower-cased if the tokenizer lower-cases.
    """
    for i in range(min(len(document), most or len(document))):
        yield Sentence(runs(document.sentence(i), tokenizer), Mark(int(document.marks[i])))


def runs(tokens: Tokens, tokenizer: Tokenizer) -> list[Run]:
    """Return the runs of a sentence's tokens."""
    ids, flags = tokens.ids, np.asarray(tokens.flags, np.int64)
    if not len(ids):
        return []
    marked = {"entity": (flags & _ENTITY) > 0, "phrase": (flags & _PHRASE) > 0, "unknown": ids == tokenizer.unk_id}
    begins = {"entity": (flags & Flag.BEGINS_ENTITY) > 0, "phrase": (flags & Flag.BEGINS_PHRASE) > 0}
    changes = [np.diff(each, prepend=each[:1]) for each in marked.values()]
    starts = np.flatnonzero(np.any([(flags & Flag.CONTINUES_WORD) == 0, *changes, *begins.values()], axis=0))
    starts = np.union1d(starts, [0])
    ends = np.append(starts[1:], len(ids))
    found = []
    texts = _texts(ids, starts, ends, tokenizer)
    for text, start, end in zip(texts, starts.tolist(), ends.tolist(), strict=True):
        kinds = {kind for kind, where in marked.items() if where[start]}
        word = {"word"} if end - start > 1 and not marked["unknown"][start] and _SPACELESS.search(text) else set()
        new = {kind for kind, where in begins.items() if where[start]}
        found.append(Run(text, frozenset(kinds | word), frozenset(new | word)))
    return _merged(found)


def _texts(ids: np.ndarray, starts: np.ndarray, ends: np.ndarray, tokenizer: Tokenizer) -> list[str]:
    """Return the text of each group (g,) of tokens, with the space before it.

    How a token reads depends on those before it, so the groups are decoded one more at a time.
    """
    texts: list[str] = []
    for low in range(0, len(starts), _DECODED):
        first, before, edges = max(0, low - _CONTEXT), "", list[int]()
        for end in ends[first : low + _DECODED + _CONTEXT].tolist():
            text = tokenizer.decode(ids[starts[first] : end].tolist())
            same = _common(before, text)
            edges = [*(min(edge, same) for edge in edges), same]  # a space before an apostrophe goes, for instance
            before = text
        parts = [before[start:stop] for start, stop in pairwise([*edges, len(before)])]
        texts += parts[low - first : low - first + _DECODED]
    return texts


def _common(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their beginning."""
    if other.startswith(one):
        return len(one)
    return next(i for i, (a, b) in enumerate(zip(one, f"{other}\0", strict=False)) if a != b)


def _merged(all_runs: list[Run]) -> list[Run]:
    """Join runs that follow one another and are marked in the same way."""
    merged: list[Run] = []
    for run in all_runs:
        if merged and not run.begins and merged[-1].kinds == run.kinds:
            merged[-1] = merged[-1]._replace(text=merged[-1].text + run.text)
        else:
            merged.append(run)
    return merged

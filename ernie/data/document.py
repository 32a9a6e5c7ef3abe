"""The nouns of the data pipeline: Tokens, Document, Sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from typing import NamedTuple

import numpy as np

IGNORE = -1  # a label that takes no part in loss and metric


class Flag(IntFlag):
    """What the corpus knows of one token; one byte each in the shards."""

    CONTINUES_WORD = 1  # not the first token of its word
    CASED = 2  # its word has a letter that could be upper or lower case
    CAPITALIZED = 4  # its word begins with a capital, seen before lower-casing
    BEGINS_PHRASE = 8
    CONTINUES_PHRASE = 16
    BEGINS_ENTITY = 32
    CONTINUES_ENTITY = 64


class Mark(IntFlag):
    """What the corpus knows of one sentence; one byte each in the shards."""

    BEGINS_PARAGRAPH = 1
    TITLE = 2  # the document's title
    HEADING = 4  # a heading inside the document


class Tokens(NamedTuple):
    """A run of tokens: ids (n,) and their flags (n,), see Flag."""

    ids: np.ndarray
    flags: np.ndarray

    def cut(self, start: int, stop: int) -> Tokens:
        """The tokens [start, stop)."""
        return Tokens(self.ids[start:stop], self.flags[start:stop])


@dataclass(frozen=True)
class Document:
    """One document of a corpus.

    `ids` (n,) and `flags` (n,) hold all its tokens, `ends` (s,) where each sentence stops, `marks` (s,) what is known
    of each sentence (see Mark).  `index` is its place in the corpus.
    """

    index: int
    ids: np.ndarray
    flags: np.ndarray
    ends: np.ndarray
    marks: np.ndarray

    def __len__(self) -> int:
        """The number of sentences."""
        return len(self.ends)

    @property
    def tokens(self) -> Tokens:
        return Tokens(self.ids, self.flags)

    def run(self, first: int, last: int) -> Tokens:
        """The tokens of the sentences [first, last)."""
        start = int(self.ends[first - 1]) if first > 0 else 0
        stop = int(self.ends[last - 1]) if last > first else start
        return self.tokens.cut(start, stop)

    def sentence(self, i: int) -> Tokens:
        """The tokens of sentence `i`."""
        return self.run(i, i + 1)

    def body(self) -> Document:
        """The document without its title and headings; sentence numbers count anew."""
        keep = (self.marks & (Mark.TITLE | Mark.HEADING)) == 0
        if keep.all():
            return self
        lengths = np.diff(self.ends, prepend=0)
        token_keep = np.repeat(keep, lengths)
        return Document(
            self.index, self.ids[token_keep], self.flags[token_keep], np.cumsum(lengths[keep]), self.marks[keep]
        )


@dataclass(frozen=True)
class Sample:
    """One unpadded training example.

    `ids` (n,) and `segments` (n,) are the model's input.  A label is a number for the sequence, an array (1, C) with
    several, or an array (n,) with one a token; IGNORE where a token or a sequence takes no part.  `written` (m,) is
    what a decoder is to write: the token that it begins with, and those that follow.  Of speech, `sound` gives what is
    heard, (s,), read anew each time: hours of it would not fit into memory.  `ids` are then n zeros, one for each
    vector that the encoder gets of it.
    """

    ids: np.ndarray
    segments: np.ndarray
    labels: Mapping[str, int | float | np.ndarray] = field(default_factory=dict)
    written: np.ndarray | None = None
    sound: Callable[[], np.ndarray] | None = None

    @property
    def size(self) -> int:
        """All its tokens, those of a decoder among them."""
        return len(self.ids) + (0 if self.written is None else len(self.written) - 1)

    def __len__(self) -> int:
        return len(self.ids)

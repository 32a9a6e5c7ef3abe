"""The basic types of the data pipeline: Tokens, Document, Sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any, NamedTuple

import numpy as np

IGNORE = -1  # a label that losses and metrics skip


class Flag(IntFlag):
    """Properties of one token of the corpus; stored as one byte in the shards."""

    CONTINUES_WORD = 1  # not the first token of its word
    CASED = 2  # its word has a letter of a script with upper and lower case
    CAPITALIZED = 4  # its word begins with a capital in the original text
    BEGINS_PHRASE = 8
    CONTINUES_PHRASE = 16
    BEGINS_ENTITY = 32
    CONTINUES_ENTITY = 64


class Mark(IntFlag):
    """Properties of one sentence of the corpus; stored as one byte in the shards."""

    BEGINS_PARAGRAPH = 1
    TITLE = 2  # the document's title
    HEADING = 4  # a heading inside the document


def content(ids: np.ndarray, segments: np.ndarray, labels: Mapping[str, Any]) -> list[bytes]:
    """Serialize the tokens and labels of a sample, or of a batch, for comparison."""
    return [
        ids.tobytes(),
        segments.tobytes(),
        *(name.encode() + np.asarray(labels[name]).tobytes() for name in sorted(labels)),
    ]


class Tokens(NamedTuple):
    """Consecutive tokens: ids (n,) and their flags (n,), see Flag."""

    ids: np.ndarray
    flags: np.ndarray

    def cut(self, start: int, stop: int) -> Tokens:
        """Return the tokens [start, stop)."""
        return Tokens(self.ids[start:stop], self.flags[start:stop])


@dataclass(frozen=True)
class Document:
    """One document of a corpus.

    `ids` (n,) and `flags` (n,) hold all its tokens, `ends` (s,) the end offset of each sentence, `marks` (s,) the
    properties of each sentence (see Mark).  `index` is its position in the corpus.
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
        """Return the tokens of the sentences [first, last)."""
        start = int(self.ends[first - 1]) if first > 0 else 0
        stop = int(self.ends[last - 1]) if last > first else start
        return self.tokens.cut(start, stop)

    def sentence(self, i: int) -> Tokens:
        """Return the tokens of sentence `i`."""
        return self.run(i, i + 1)

    def body(self) -> Document:
        """Return the document without its title and headings; the remaining sentences are renumbered."""
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
    several, or an array with one (n,) or several (n, C) per token.  IGNORE excludes a token or a sequence, as does NaN
    in place of several numbers.  `decoder_ids` (m,) is the
    target sequence of a decoder, including the start token.  For speech, `sound` reads the waveform (s,) on every call,
    since hours of audio would not fit into memory.  `ids` are then n zeros, one per input vector of the encoder.
    `weight` is the factor of the sample's loss.  `ranks` (n,) say which targets go first where a task has fewer of them
    later in training: the highest.  One that `continues` the row of the sample before it has no labels of
    its own.
    """

    ids: np.ndarray
    segments: np.ndarray
    labels: Mapping[str, int | float | np.ndarray] = field(default_factory=dict)
    decoder_ids: np.ndarray | None = None
    sound: Callable[[], np.ndarray] | None = None
    weight: float = 1.0
    ranks: np.ndarray | None = None
    continues: bool = False

    @property
    def size(self) -> int:
        """The number of tokens, including those the decoder predicts."""
        return len(self.ids) + (0 if self.decoder_ids is None else len(self.decoder_ids) - 1)

    def __len__(self) -> int:
        return len(self.ids)
